"""The kernels as PyTorch operators, ``torch.ops.gelu_fast.*``, on the tensors' own memory.

Each derivative is an operator of its own, without a formula for autograd: that is `functions`' work. (A formula
registered here would break torch.func.grad, and forward mode would return zeros, in torch 2.13.) All are element-wise,
so one rule serves vmap for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .. import ufuncs
from ..checks import form_number
from ..cpu import ufuncs as cpu
from ..views import densest_last
from .memory import in_huge_pages

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_LIBRARY = torch.library.Library("gelu_fast", "DEF")
_FLAT = {
    0: (ufuncs.gelu, ufuncs.gelu_tanh, ufuncs.gelu_quick),
    2: (ufuncs.gelu_grad2, ufuncs.gelu_tanh_grad2, ufuncs.gelu_quick_grad2),
    "product": (ufuncs.gelu_backward, ufuncs.gelu_tanh_backward, ufuncs.gelu_quick_backward),
}  # fmt: skip


def check(x: torch.Tensor, name: str = "x") -> None:
    """Raise unless it is a strided tensor of a float dtype we have."""
    if x.dtype not in DTYPES:
        expected = ", ".join(str(d).removeprefix("torch.") for d in DTYPES)
        raise TypeError(f"{name}: expected {expected}, got {str(x.dtype).removeprefix('torch.')}")
    if x.layout is not torch.strided or x.is_nested:
        raise TypeError(f"{name}: expected a strided tensor, got {'a nested one' if x.is_nested else x.layout}")


def array(x: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's memory; bfloat16 as int16, which below the front door means bfloat16."""
    x = x.detach()
    if x.is_neg():
        x = x.resolve_neg()
    return (x.view(torch.int16) if x.dtype is torch.bfloat16 else x).numpy()


def over_rows(kind: int, function: int, inputs: tuple[torch.Tensor, ...], out: torch.Tensor) -> torch.Tensor:
    """Compute into `out`, of the shape of all inputs; the axis along which it is densest becomes the row."""
    arrays, target = [array(x) for x in inputs], array(out)
    if target.ndim == 0:
        arrays, target = [a.reshape(1) for a in arrays], target.reshape(1)
    else:
        *arrays, target = densest_last(target, *arrays, target)
        if all(a.flags.c_contiguous for a in (*arrays, target)):
            arrays, target = [a.reshape(-1) for a in arrays], target.reshape(-1)
    cpu.run_rows(kind, function, tuple(arrays), (target,))
    return out


def _unary(order: int) -> Callable[[torch.Tensor, str], torch.Tensor]:
    def kernel(x: torch.Tensor, approximate: str) -> torch.Tensor:
        form, out = form_number(approximate), in_huge_pages(torch.empty_like(x))
        if x.dtype is not torch.bfloat16 and x.is_contiguous() and not x.is_neg():
            # The ufunc stores large results past the caches.
            _FLAT[order][form](x.detach().numpy(), out=out.numpy())
            return out
        return over_rows(cpu.UNARY, form * 3 + order, (x,), out)

    return kernel


def _backward(dy: torch.Tensor, x: torch.Tensor, approximate: str) -> torch.Tensor:
    form, out = form_number(approximate), in_huge_pages(torch.empty_like(x))
    dense = x.is_contiguous() and dy.is_contiguous() and not (x.is_neg() or dy.is_neg())
    if x.dtype is not torch.bfloat16 and dense:
        _FLAT["product"][form](dy.detach().numpy(), x.detach().numpy(), out=out.numpy())
        return out
    return over_rows(cpu.PRODUCT, form * 3 + 1, (dy, x), out)


def _cuda(name: str) -> Callable[..., torch.Tensor]:
    def kernel(*args: Any) -> torch.Tensor:
        from .. import cuda

        *tensors, approximate = args
        return getattr(cuda, name)(*(t.detach() for t in tensors), approximate)

    return kernel


def _fake(*args: Any) -> torch.Tensor:
    form_number(args[-1])
    return torch.empty_like(args[-2])


def batched(info: Any, dim: int | None, x: torch.Tensor) -> torch.Tensor:
    """With the batch as its first axis."""
    return x.movedim(dim, 0) if dim is not None else x.unsqueeze(0).expand(info.batch_size, *x.shape)


def _vmap(operator: Any) -> Callable[..., tuple[torch.Tensor, int]]:
    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[torch.Tensor, int]:
        *tensors, approximate = args
        ranks = [t.ndim - (d is not None) for t, d in zip(tensors, in_dims, strict=False)]
        moved = [batched(info, d, t) for t, d in zip(tensors, in_dims, strict=False)]
        assert len(set(ranks)) == 1  # the operators don't broadcast
        return operator(*moved, approximate), 0

    return rule


def _register(name: str, schema: str, kernel: Callable[..., torch.Tensor], cuda_name: str) -> Any:
    _LIBRARY.define(f"{name}({schema}, str approximate) -> Tensor", tags=[torch.Tag.pt2_compliant_tag])
    _LIBRARY.impl(name, kernel, "CPU")
    _LIBRARY.impl(name, _cuda(cuda_name), "CUDA")
    qualified = f"gelu_fast::{name}"
    torch.library.register_fake(qualified, _fake, lib=_LIBRARY)
    operator = getattr(torch.ops.gelu_fast, name).default
    torch.library.register_vmap(qualified, _vmap(operator), lib=_LIBRARY)
    return operator


gelu = _register("gelu", "Tensor x", _unary(0), "gelu")
gelu_grad2 = _register("gelu_grad2", "Tensor x", _unary(2), "gelu_grad2")
gelu_backward = _register("gelu_backward", "Tensor dy, Tensor x", _backward, "gelu_backward")
