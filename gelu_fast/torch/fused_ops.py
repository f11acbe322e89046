"""bias + GELU and GEGLU as PyTorch operators, with backward, over the rows of the tensors' own memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..checks import form_number
from ..cpu import ufuncs as cpu
from . import ops
from .memory import in_huge_pages
from .ops import _LIBRARY, array, batched


def _bias_gelu(x: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
    out = in_huge_pages(torch.empty_like(x))
    cpu.run_rows(cpu.SUM, form_number(approximate), (array(x), array(bias.expand_as(x))), (array(out),))
    return out


def _bias_gelu_backward(
    dy: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, approximate: str
) -> tuple[torch.Tensor, torch.Tensor]:
    dx, sums = in_huge_pages(torch.empty_like(x)), np.empty(x.shape[-1], np.float64)
    arrays = (array(x), array(bias.expand_as(x)), array(dy))
    cpu.run_rows(cpu.SUM_BACKWARD, form_number(approximate), arrays, (array(dx),), sums)
    return dx, torch.from_numpy(sums).to(bias.dtype)


def halves(x: torch.Tensor, gate_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(gate, value), views."""
    first, second = x.chunk(2, -1)
    return (first, second) if gate_first else (second, first)


def _geglu(x: torch.Tensor, approximate: str, gate_first: bool) -> torch.Tensor:
    gate, value = halves(x, gate_first)
    out = in_huge_pages(torch.empty(gate.shape, dtype=x.dtype))
    cpu.run_rows(cpu.GATE, form_number(approximate), (array(gate), array(value)), (array(out),))
    return out


def _geglu_backward(dy: torch.Tensor, x: torch.Tensor, approximate: str, gate_first: bool) -> torch.Tensor:
    gate, value = halves(x, gate_first)
    out = in_huge_pages(torch.empty(x.shape, dtype=x.dtype))
    targets = tuple(array(t) for t in halves(out, gate_first))
    cpu.run_rows(cpu.GATE_BACKWARD, form_number(approximate), (array(gate), array(value), array(dy)), targets)
    return out


def _bias_vmap(info: Any, in_dims: tuple[int | None, ...], x: Any, bias: Any, approximate: str) -> Any:
    x, bias = batched(info, in_dims[0], x), batched(info, in_dims[1], bias)
    return ops.gelu(x + bias.view(len(bias), *[1] * (x.ndim - 2), -1), approximate), 0


def _bias_backward_vmap(
    info: Any, in_dims: tuple[int | None, ...], dy: Any, x: Any, bias: Any, approximate: str
) -> Any:
    dy, x, bias = (batched(info, d, t) for d, t in zip(in_dims, (dy, x, bias), strict=False))
    dx = ops.gelu_backward(dy, x + bias.view(len(bias), *[1] * (x.ndim - 2), -1), approximate)
    return (dx, dx.sum(tuple(range(1, x.ndim - 1))) if x.ndim > 2 else dx), (0, 0)


def _geglu_vmap(info: Any, in_dims: tuple[int | None, ...], x: Any, approximate: str, gate_first: bool) -> Any:
    return geglu(batched(info, in_dims[0], x), approximate, gate_first), 0


def _geglu_backward_vmap(
    info: Any, in_dims: tuple[int | None, ...], dy: Any, x: Any, approximate: str, gate_first: bool
) -> Any:
    return geglu_backward(batched(info, in_dims[0], dy), batched(info, in_dims[1], x), approximate, gate_first), 0


def _register(name: str, schema: str, kernel: Any, fake: Any, vmap: Any) -> Any:
    _LIBRARY.define(f"{name}{schema}", tags=[torch.Tag.pt2_compliant_tag])
    _LIBRARY.impl(name, kernel, "CPU")
    torch.library.register_fake(f"gelu_fast::{name}", fake, lib=_LIBRARY)
    torch.library.register_vmap(f"gelu_fast::{name}", vmap, lib=_LIBRARY)
    return getattr(torch.ops.gelu_fast, name).default


bias_gelu = _register(
    "bias_gelu", "(Tensor x, Tensor bias, str approximate) -> Tensor", _bias_gelu,
    lambda x, bias, approximate: torch.empty_like(x), _bias_vmap,
)  # fmt: skip
bias_gelu_backward = _register(
    "bias_gelu_backward", "(Tensor dy, Tensor x, Tensor bias, str approximate) -> (Tensor, Tensor)",
    _bias_gelu_backward, lambda dy, x, bias, approximate: (torch.empty_like(x), bias.new_empty(bias.shape)),
    _bias_backward_vmap,
)  # fmt: skip
geglu = _register(
    "geglu", "(Tensor x, str approximate, bool gate_first) -> Tensor", _geglu,
    lambda x, approximate, gate_first: x.new_empty((*x.shape[:-1], x.shape[-1] // 2)), _geglu_vmap,
)  # fmt: skip
geglu_backward = _register(
    "geglu_backward", "(Tensor dy, Tensor x, str approximate, bool gate_first) -> Tensor", _geglu_backward,
    lambda dy, x, approximate, gate_first: x.new_empty(x.shape), _geglu_backward_vmap,
)  # fmt: skip
