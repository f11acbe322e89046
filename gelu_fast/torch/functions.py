"""GELU for autograd: value, first and second derivative, each by an operator of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from ..checks import unknown_form
from ..forms import FORMS
from . import ops


class _Gelu(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, approximate: str) -> torch.Tensor:
        return ops.gelu(x, approximate)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, str], output: torch.Tensor) -> None:
        x, ctx.approximate = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return _GeluBackward.apply(dy, x, ctx.approximate), None


class _GeluBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(dy: torch.Tensor, x: torch.Tensor, approximate: str) -> torch.Tensor:
        return ops.gelu_backward(dy, x, approximate)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor, str], output: torch.Tensor) -> None:
        dy, x, ctx.approximate = inputs
        ctx.save_for_backward(dy, x)

    @staticmethod
    def backward(ctx: Any, ddx: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        dy, x = ctx.saved_tensors
        need_dy, need_x = ctx.needs_input_grad[:2]
        ddy = _GeluBackward.apply(ddx, x, ctx.approximate) if need_dy else None
        return ddy, ddx * dy * _GeluGrad2.apply(x, ctx.approximate) if need_x else None, None


class _GeluGrad2(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, approximate: str) -> torch.Tensor:
        return ops.gelu_grad2(x, approximate)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, str], output: torch.Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        raise NotImplementedError("gelu_fast.torch.gelu has two derivatives, no third")


# The same with tangents: classes of their own, since torch.compile (2.13) takes no Function that has a jvp.

class _GeluDual(_Gelu):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, str], output: torch.Tensor) -> None:
        _Gelu.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return _GeluBackwardDual.apply(dy, x, ctx.approximate), None

    @staticmethod
    def jvp(ctx: Any, dx: torch.Tensor, _: None) -> Any:
        return _GeluDual.backward(ctx, dx)[0]


class _GeluBackwardDual(_GeluBackward):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor, str], output: torch.Tensor) -> None:
        _GeluBackward.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, ddx: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        dy, x = ctx.saved_tensors
        second = _GeluGrad2Dual.apply(x, ctx.approximate)
        return _GeluBackwardDual.apply(ddx, x, ctx.approximate), ddx * dy * second, None

    @staticmethod
    def jvp(ctx: Any, ddy: torch.Tensor | None, dx: torch.Tensor | None, _: None) -> Any:
        dy, x = ctx.saved_tensors
        of_dy = 0 if ddy is None else _GeluBackwardDual.apply(ddy, x, ctx.approximate)
        return of_dy if dx is None else of_dy + dx * dy * _GeluGrad2Dual.apply(x, ctx.approximate)


class _GeluGrad2Dual(_GeluGrad2):
    @staticmethod
    def jvp(ctx: Any, *slopes: Any) -> Any:
        return _GeluGrad2.backward(ctx)


def forward_mode() -> bool:
    """Whether tangents may come along."""
    return bool(forward_ad._current_level >= 0)


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """Gaussian error linear unit, as ``torch.nn.functional.gelu``, differentiable twice.

    Parameters
    ----------
    x : torch.Tensor
        float32, float64, float16 or bfloat16; any shape and strides. A CUDA tensor goes through `gelu_fast.cuda`.
    approximate : {"none", "tanh", "quick"}, optional
        Exact x·Φ(x), the tanh form, or x·σ(1.702x).

    Returns
    -------
    torch.Tensor
        Of the dtype, shape and, where `x` is dense, strides of `x`.

    Raises
    ------
    TypeError
        If `x` is no strided tensor of one of these dtypes.
    ValueError
        If `approximate` is unknown.
    NotImplementedError
        For a third derivative.

    Notes
    -----
    Bounds as `gelu_fast.gelu`, `gelu_backward` and `gelu_grad2`: right in the whole tail, where torch's own returns 0
    from −6 down. gelu(−inf) is −0.0 where torch gives nan.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x: expected a torch.Tensor, got {type(x).__name__}")
    ops.check(x)
    if approximate not in FORMS:
        raise unknown_form(approximate)
    # Without a gradient to prepare, autograd's wrapper (half of a small call's time) is left out.
    plain = not (x.requires_grad and torch.is_grad_enabled()) and not forward_mode()
    function = _GeluDual if forward_mode() else _Gelu
    result: torch.Tensor = ops.gelu(x, approximate) if plain else function.apply(x, approximate)
    return result
