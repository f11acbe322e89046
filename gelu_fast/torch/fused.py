"""bias + GELU and GEGLU for autograd: the first derivative by a fused operator, the second by steps."""

from __future__ import annotations

from typing import Any

import torch

from ..checks import form_number
from . import fused_ops, ops
from .functions import _GeluBackward, _GeluGrad2, forward_mode, gelu


class _BiasGelu(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
        return fused_ops.bias_gelu(x, bias, approximate)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, bias, ctx.approximate = inputs
        ctx.save_for_backward(x, bias)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        x, bias = ctx.saved_tensors
        return (*_BiasGeluBackward.apply(dy, x, bias, ctx.approximate), None)


class _BiasGeluBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(dy: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, approximate: str) -> Any:
        return fused_ops.bias_gelu_backward(dy, x, bias, approximate)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        dy, x, bias, ctx.approximate = inputs
        ctx.save_for_backward(dy, x, bias)

    @staticmethod
    def backward(ctx: Any, ddx: torch.Tensor, ddb: torch.Tensor) -> Any:
        dy, x, bias = ctx.saved_tensors
        u, slope = x + bias, ddx + ddb
        second = slope * dy * _GeluGrad2.apply(u, ctx.approximate)
        leading = tuple(range(x.ndim - 1))
        return _GeluBackward.apply(slope, u, ctx.approximate), second, second.sum(leading) if leading else second, None


class _Geglu(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, approximate: str, gate_first: bool) -> torch.Tensor:
        return fused_ops.geglu(x, approximate, gate_first)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.approximate, ctx.gate_first = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return _GegluBackward.apply(dy, x, ctx.approximate, ctx.gate_first), None, None


class _GegluBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(dy: torch.Tensor, x: torch.Tensor, approximate: str, gate_first: bool) -> torch.Tensor:
        return fused_ops.geglu_backward(dy, x, approximate, gate_first)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        dy, x, ctx.approximate, ctx.gate_first = inputs
        ctx.save_for_backward(dy, x)

    @staticmethod
    def backward(ctx: Any, ddx: torch.Tensor) -> Any:
        dy, x = ctx.saved_tensors
        form = ctx.approximate
        gate, value = fused_ops.halves(x, ctx.gate_first)
        to_gate, to_value = fused_ops.halves(ddx, ctx.gate_first)
        slope = _GeluBackward.apply(torch.ones_like(gate), gate, form)
        ddy = to_value * gelu(gate, form) + to_gate * value * slope
        in_value = to_gate * dy * slope
        in_gate = to_value * dy * slope + to_gate * dy * value * _GeluGrad2.apply(gate, form)
        parts = (in_gate, in_value) if ctx.gate_first else (in_value, in_gate)
        return ddy, torch.cat(parts, -1), None, None


def bias_gelu(x: torch.Tensor, bias: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """``gelu(x + bias)`` in one pass, differentiable twice.

    Parameters
    ----------
    x : torch.Tensor, shape (..., n)
        As for `gelu`.
    bias : torch.Tensor, shape (n,)
        Of the dtype of `x`.
    approximate : {"none", "tanh", "quick"}, optional

    Returns
    -------
    torch.Tensor, shape (..., n)

    Raises
    ------
    TypeError, ValueError
        As `gelu`; ValueError if shapes or dtypes don't fit.

    Notes
    -----
    Bounds as `gelu_fast.bias_gelu` and `bias_gelu_backward`. CUDA tensors, and any in forward-mode
    differentiation, go through `gelu` in steps.
    """
    for name, t in (("x", x), ("bias", bias)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name}: expected a torch.Tensor, got {type(t).__name__}")
        ops.check(t, name)
    if x.ndim == 0 or bias.shape != x.shape[-1:] or bias.dtype != x.dtype:
        expected = f"shape {tuple(x.shape[-1:])} and {x.dtype}, as the last axis of x"
        raise ValueError(f"bias: expected {expected}, got shape {tuple(bias.shape)} and {bias.dtype}")
    form_number(approximate)
    if x.device.type != "cpu" or forward_mode():
        return gelu(x + bias, approximate)
    result: torch.Tensor = _BiasGelu.apply(x, bias, approximate)
    return result


def geglu(x: torch.Tensor, approximate: str = "none", *, gate: str = "second") -> torch.Tensor:
    """One half of the last axis times `gelu` of the other, in one pass, differentiable twice.

    Parameters
    ----------
    x : torch.Tensor, shape (..., 2n)
    approximate : {"none", "tanh", "quick"}, optional
    gate : {"second", "first"}, optional
        Which half goes through `gelu`.

    Returns
    -------
    torch.Tensor, shape (..., n)
        In one block.

    Raises
    ------
    TypeError, ValueError
        As `gelu`; ValueError if the last axis is odd or `gate` unknown.

    Notes
    -----
    Bounds as `gelu_fast.geglu`. CUDA tensors, and any in forward-mode
    differentiation, go through `gelu` in steps.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x: expected a torch.Tensor, got {type(x).__name__}")
    ops.check(x)
    if gate not in ("second", "first"):
        raise ValueError(f"gate: expected 'second' or 'first', got {gate!r}")
    if x.ndim == 0 or x.shape[-1] % 2:
        raise ValueError(f"x: expected a last axis of even length, got shape {tuple(x.shape)}")
    form_number(approximate)
    if x.device.type != "cpu" or forward_mode():
        gated, value = fused_ops.halves(x, gate == "first")
        return value * gelu(gated, approximate)
    result: torch.Tensor = _Geglu.apply(x, approximate, gate == "first")
    return result
