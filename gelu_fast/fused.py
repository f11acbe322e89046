"""Fused forms: a bias added on the way in, and the gated unit; each with its backward pass. The front door for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .checks import EXPECTED, as_array, check_out, form_number, is_float, result_dtype
from .cpu import ufuncs as cpu
from .cpu.ufuncs import run_rows
from .cuda.interface import is_device_array
from .steps import needs_steps, stepped_bias_gelu, stepped_bias_gelu_backward, stepped_geglu, stepped_geglu_backward

_TILE = 1024  # elements: short rows are taken together up to about so many


def bias_gelu(x: Any, bias: Any, approximate: str = "none", *, out: Any = None) -> Any:
    """``gelu(x + bias)`` in one pass.

    Parameters
    ----------
    x : array_like, shape (..., n)
        float16, bfloat16, float32 or float64; any strides and byte order. Integers promote as in `gelu`.
    bias : array_like, shape (n,)
        Promoted against `x` as by NumPy.
    approximate : {"none", "tanh", "quick"}, optional
        As for `gelu`.
    out : ndarray, shape (..., n), optional
        Takes the result; of the result's dtype. May be `x` itself.

    Returns
    -------
    ndarray, shape (..., n)
        Of the common dtype; `out` if given.

    Raises
    ------
    TypeError
        If an array is complex, longdouble, object, string or datetime; if `out` is not an array.
    ValueError
        If `x` has no axis, if `bias` has another shape than (n,), if `approximate` is unknown, or if `out` has another
        dtype or shape or is read-only.

    Notes
    -----
    The sum is rounded to the dtype, then `gelu` of it is within `gelu`'s bound; so float32 and float64 have the bits
    of ``gelu(x + bias)``. 16-bit types are computed in float32, the sum too, and rounded once.
    """
    form = form_number(approximate)
    if is_device_array(x) or is_device_array(bias):
        from . import cuda

        return cuda.bias_gelu(x, bias, approximate, out=out)
    if needs_steps(x, bias):
        if isinstance(x, np.ndarray):
            _check_bias(x, np.asanyarray(bias))
        return stepped_bias_gelu(x, bias, form, out)
    x, bias = _common({"x": x, "bias": bias})
    _check_bias(x, bias)
    result, target = _result(out, x.shape, x.dtype, [x, bias])
    x, bias, target = _tiled(x, bias, target)
    run_rows(cpu.SUM, form, (x, np.broadcast_to(bias, x.shape)), (target,))
    return result()


def bias_gelu_backward(dy: Any, x: Any, bias: Any, approximate: str = "none") -> tuple[Any, Any]:
    """Gradients of a loss with respect to `x` and `bias`, from the one with respect to ``bias_gelu(x, bias)``.

    Parameters
    ----------
    dy, x : array_like, shape (..., n)
    bias : array_like, shape (n,)
        All promoted against each other as by NumPy.
    approximate : {"none", "tanh", "quick"}, optional

    Returns
    -------
    dx : ndarray, shape (..., n)
        dy·gelu′(x + bias).
    dbias : ndarray, shape (n,)
        The sum of dx over the leading axes.

    Raises
    ------
    TypeError, ValueError
        As `bias_gelu`; ValueError if `dy` and `x` differ in shape.
    MemoryError
        If there is no memory for the sums.

    Notes
    -----
    dx has the bound of `gelu_backward`. dbias sums dx as computed (for 16-bit types, before it is rounded to them), by
    eights in the type of computation and these in float64: before it is rounded, its error is below 2⁻²¹ of the sum of
    dx's magnitudes in float32. Its bits do not depend on the number of threads.
    """
    form = form_number(approximate)
    if any(map(is_device_array, (dy, x, bias))):
        from . import cuda

        return cuda.bias_gelu_backward(dy, x, bias, approximate)
    if needs_steps(dy, x, bias):
        if isinstance(x, np.ndarray):
            _check_bias(x, np.asanyarray(bias))
        return stepped_bias_gelu_backward(dy, x, bias, form)
    dy, x, bias = _common({"dy": dy, "x": x, "bias": bias})
    _check_bias(x, bias)
    _check_shape("dy", dy, x.shape)
    dx, sums = np.empty(x.shape, x.dtype), np.empty(x.shape[-1], np.float64)
    run_rows(cpu.SUM_BACKWARD, form, (x, np.broadcast_to(bias, x.shape), dy), (dx,), sums)
    with np.errstate(over="ignore"):  # a sum may be too large for its dtype; no warning, as everywhere
        return dx, sums.astype(x.dtype)


def geglu(x: Any, approximate: str = "none", *, gate: str = "second", out: Any = None) -> Any:
    """The gated unit: one half of the last axis times `gelu` of the other.

    Parameters
    ----------
    x : array_like, shape (..., 2n)
        As for `gelu`.
    approximate : {"none", "tanh", "quick"}, optional
    gate : {"second", "first"}, optional
        Which half goes through `gelu`: the second, as in Shazeer's GEGLU and diffusers, or the first, as in vLLM's
        ``gelu_and_mul`` and Phi-3.
    out : ndarray, shape (..., n), optional
        Takes the result; of the result's dtype.

    Returns
    -------
    ndarray, shape (..., n)

    Raises
    ------
    TypeError
        As `gelu`.
    ValueError
        If the last axis of `x` is odd or missing, if `gate` or `approximate` is unknown, or `out` is not as it must be.

    Notes
    -----
    Two roundings: the bound of `gelu` and half a ULP more, where the product is not subnormal; in float32 and float64
    the bits of ``value * gelu(gate)``. Source: Shazeer, https://arxiv.org/abs/2002.05202.
    """
    form, first = form_number(approximate), _gate_first(gate)
    if is_device_array(x):
        from . import cuda

        return cuda.geglu(x, approximate, gate=gate, out=out)
    if needs_steps(x):
        return stepped_geglu(x, form, lambda a: _halves(a, first), out)
    (x,) = _common({"x": x})
    g, value = _halves(x, first)
    result, target = _result(out, g.shape, x.dtype, [x])
    run_rows(cpu.GATE, form, (g, value), (target,))
    return result()


def geglu_backward(dy: Any, x: Any, approximate: str = "none", *, gate: str = "second", out: Any = None) -> Any:
    """Gradient of a loss with respect to `x` from the one with respect to ``geglu(x)``.

    Parameters
    ----------
    dy : array_like, shape (..., n)
    x : array_like, shape (..., 2n)
        Promoted against each other as by NumPy.
    approximate, gate
        As for `geglu`.
    out : ndarray, shape (..., 2n), optional
        Takes the result; of the result's dtype. May be `x` itself.

    Returns
    -------
    ndarray, shape (..., 2n)
        dy·gelu(gate) in the value's half, dy·value·gelu′(gate) in the gate's.

    Raises
    ------
    TypeError, ValueError
        As `geglu`; ValueError if `dy` has another shape than (..., n).
    """
    form, first = form_number(approximate), _gate_first(gate)
    if is_device_array(dy) or is_device_array(x):
        from . import cuda

        return cuda.geglu_backward(dy, x, approximate, gate=gate, out=out)
    if needs_steps(dy, x):
        return stepped_geglu_backward(dy, x, form, lambda a: _halves(a, first), first, out)
    dy, x = _common({"dy": dy, "x": x})
    g, value = _halves(x, first)
    _check_shape("dy", dy, g.shape)
    result, target = _result(out, x.shape, x.dtype, [dy, x])
    run_rows(cpu.GATE_BACKWARD, form, (g, value, dy), _halves(target, first))
    return result()


def _common(arrays: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """As NumPy arrays of their common float dtype, native and aligned."""
    found = {name: as_array(name, a) for name, a in arrays.items()}
    for name, a in found.items():
        if not (a.dtype.kind in "biu" or is_float(a.dtype)):
            raise TypeError(f"{name}: expected {EXPECTED}, got {a.dtype}")
    dtype = result_dtype(*found.values())
    return [np.require(a.astype(dtype, copy=False), requirements="A") for a in found.values()]


def _check_bias(x: np.ndarray[Any, Any], bias: np.ndarray[Any, Any]) -> None:
    if x.ndim == 0:
        raise ValueError("x: expected at least one axis, got none")
    if bias.shape != x.shape[-1:]:
        raise ValueError(f"bias: expected shape {x.shape[-1:]}, the last axis of x, got {bias.shape}")


def _check_shape(name: str, array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {array.shape}")


def _gate_first(gate: str) -> bool:
    if gate not in ("second", "first"):
        raise ValueError(f"gate: expected 'second' or 'first', got {gate!r}")
    return gate == "first"


def _halves(x: Any, first: bool) -> tuple[Any, Any]:
    """(gate, value), views of `x`."""
    if not hasattr(x, "shape") or hasattr(x, "iloc"):
        raise TypeError(f"x: expected an array whose last axis can be halved, got {type(x).__name__}; pass its values")
    if x.ndim == 0 or x.shape[-1] % 2:
        raise ValueError(f"x: expected a last axis of even length, got shape {x.shape}")
    n = x.shape[-1] // 2
    halves = x[..., :n], x[..., n:]
    return halves if first else halves[::-1]


def _result(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: list[np.ndarray[Any, Any]]
) -> tuple[Any, np.ndarray[Any, Any]]:
    """(what to return when all is done, where to compute): `out` checked, or apart from it where that is safer."""
    if out is None:
        target = np.empty(shape, dtype)
        return lambda: target, target
    check_out(out, shape, dtype)
    if out.dtype == dtype and out.flags.aligned and all(_apart_or_same(out, a) for a in inputs):
        return lambda: out, out.view(np.ndarray)
    target = np.empty(shape, dtype)

    def copied() -> Any:
        out[...] = target
        return out

    return copied, target


def _apart_or_same(out: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> bool:
    if out is array or not np.may_share_memory(out, array):
        return True
    return out.ctypes.data == array.ctypes.data and out.strides == array.strides and out.shape == array.shape


def _tiled(x: np.ndarray[Any, Any], bias: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> Any:
    """Short rows in one block, several taken as one, the bias repeated: the same numbers, fewer calls."""
    n = x.shape[-1]
    if not (0 < n <= _TILE // 4 and x.flags.c_contiguous and out.flags.c_contiguous):
        return x, bias, out
    rows = x.size // n
    together = next((k for k in range(_TILE // n, 0, -1) if rows % k == 0), 1)
    shape = (rows // together, together * n)
    return x.reshape(shape), np.tile(bias, together), out.reshape(shape)
