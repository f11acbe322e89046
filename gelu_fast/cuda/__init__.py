"""GELU, its derivatives and its fused forms for arrays on a CUDA device, by numba.cuda.

In goes anything with ``__cuda_array_interface__`` (torch, CuPy, Numba, …), out comes an array of torch's or CuPy's
where the first argument is one, and else one of Numba's; no copy is made. `gelu_fast.gelu` and its companions bring
such arrays here too. Needs the ``cuda`` extra and a GPU at the first call, and nothing at import. A function is
compiled at its first call for a dtype, in one to ten seconds, and kept on disk where a directory can be written.

dtypes: float32, float64, float16 and bfloat16 (torch.bfloat16, ml_dtypes.bfloat16, or its bits as uint16); all arrays
of a call must have one. 16-bit types are computed in float32 and rounded once. Bounds, limits and nan are those of
`gelu_fast.gelu`; the bits are not those of the CPU, but a number gives the same bits wherever it stands in an array.

Any layout that folds into two nested loops: all dense ones, a slice along one axis, a transpose. Others raise
ValueError. 16-byte accesses need a dense last loop and equal alignments modulo 16 bytes of inputs and result.

The work is queued, not waited for: in the stream that the array names, in torch's current one for its tensors.
"""

from __future__ import annotations

from typing import Any

from gelu_fast.checks import form_number

_STEMS = ("gelu", "gelu_tanh", "gelu_quick")

__all__ = [
    "bias_gelu", "bias_gelu_backward", "geglu", "geglu_backward", "gelu", "gelu_backward", "gelu_grad", "gelu_grad2",
]  # fmt: skip


def gelu(x: Any, approximate: str = "none", *, out: Any = None) -> Any:
    """Gaussian error linear unit, element by element.

    Parameters
    ----------
    x : CUDA array
        Any shape; float16, bfloat16, float32 or float64.
    approximate : {"none", "tanh", "quick"}, optional
        As for `gelu_fast.gelu`.
    out : CUDA array, optional
        Takes the result; of the dtype and shape of `x`. May be `x` itself, but not overlap it otherwise.

    Returns
    -------
    CUDA array
        Of the dtype and shape of `x`, and of its order of axes in memory; `out` if given.

    Raises
    ------
    TypeError
        If an array is not on a device, or of a dtype, byte order or kind that is not served; if dtypes differ.
    ValueError
        If a layout is not served (the module's docstring has which), if `out` is unfit, if `approximate` is unknown.
    ImportError
        If numba-cuda is not installed.
    RuntimeError
        If there is no GPU or no driver.

    Notes
    -----
    Error bound: 2 ULP in float32 and float64, over every input.
    """
    return _serve("", {"x": x}, approximate, out)


def gelu_grad(x: Any, approximate: str = "none", *, out: Any = None) -> Any:
    """First derivative of GELU, element by element.

    Parameters, return value and errors are those of `gelu`.

    Notes
    -----
    Error bound: 2 ULP; next to a root (`gelu_fast.bounds.NEAR_ROOT`), 2⁻²⁶ absolute in float32 and 2⁻⁵⁴ in float64.
    """
    return _serve("_grad", {"x": x}, approximate, out)


def gelu_grad2(x: Any, approximate: str = "none", *, out: Any = None) -> Any:
    """Second derivative of GELU, element by element.

    Parameters, return value and errors are those of `gelu`, the bound that of `gelu_grad`.
    """
    return _serve("_grad2", {"x": x}, approximate, out)


def gelu_backward(dy: Any, x: Any, approximate: str = "none", *, out: Any = None) -> Any:
    """dy·gelu′(x), one pass.

    Parameters
    ----------
    dy, x : CUDA array
        Of one dtype; broadcast against each other.
    approximate, out
        As for `gelu`.

    Returns
    -------
    CUDA array
        Of the broadcast shape, and of the library of `dy`.

    Raises
    ------
    TypeError, ValueError, ImportError, RuntimeError
        As `gelu`.

    Notes
    -----
    IEEE product of the rounded derivative, so inf·0 is nan. Error bound: 4.5 ULP, next to a root as `gelu_grad`.
    """
    return _serve("_backward", {"dy": dy, "x": x}, approximate, out)


def bias_gelu(x: Any, bias: Any, approximate: str = "none", *, out: Any = None) -> Any:
    """``gelu(x + bias)`` in one pass.

    Parameters
    ----------
    x : CUDA array, shape (..., n)
    bias : CUDA array, shape (n,)
        Of the dtype of `x`.
    approximate, out
        As for `gelu`.

    Returns
    -------
    CUDA array, shape (..., n)

    Raises
    ------
    TypeError, ValueError, ImportError, RuntimeError
        As `gelu`; ValueError if `x` has no axis or `bias` another shape than (n,).
    """
    from .launch import serve_bias

    return serve_bias(_STEMS[form_number(approximate)], x, bias, out)


def bias_gelu_backward(dy: Any, x: Any, bias: Any, approximate: str = "none") -> tuple[Any, Any]:
    """Gradients of a loss with respect to `x` and `bias`, from the one with respect to ``bias_gelu(x, bias)``.

    Parameters
    ----------
    dy, x : CUDA array, shape (..., n)
    bias : CUDA array, shape (n,)
        All of one dtype.
    approximate : {"none", "tanh", "quick"}, optional

    Returns
    -------
    dx : CUDA array, shape (..., n)
        dy·gelu′(x + bias), in C order.
    dbias : CUDA array, shape (n,)
        The sum of dx over the leading axes.

    Raises
    ------
    TypeError, ValueError, ImportError, RuntimeError
        As `gelu`; ValueError if shapes don't fit, or if the leading axes don't fold into one.

    Notes
    -----
    dx has the bound of `gelu_backward`. dbias sums dx as computed (for 16-bit types, before it is rounded to them) in
    pairs of numbers of the type of computation: before it is rounded, its error is below 2⁻⁴⁰ of the sum of dx's
    magnitudes in float32. A sum that overflows on the way stays infinite. Its bits depend on values and shape alone.
    """
    from .launch import serve_bias_backward

    return serve_bias_backward(_STEMS[form_number(approximate)], dy, x, bias)


def geglu(x: Any, approximate: str = "none", *, gate: str = "second", out: Any = None) -> Any:
    """The gated unit: one half of the last axis times `gelu` of the other.

    Parameters
    ----------
    x : CUDA array, shape (..., 2n)
    approximate : {"none", "tanh", "quick"}, optional
    gate : {"second", "first"}, optional
        Which half goes through `gelu`.
    out : CUDA array, shape (..., n), optional
        Of the dtype of `x`; may not overlap it.

    Returns
    -------
    CUDA array, shape (..., n)

    Raises
    ------
    TypeError, ValueError, ImportError, RuntimeError
        As `gelu`; ValueError if the last axis is odd or missing, or `gate` is unknown.
    """
    from .launch import serve_gate

    return serve_gate(_STEMS[form_number(approximate)], x, _gate_first(gate), out)


def geglu_backward(dy: Any, x: Any, approximate: str = "none", *, gate: str = "second", out: Any = None) -> Any:
    """Gradient of a loss with respect to `x` from the one with respect to ``geglu(x)``, in one pass.

    Parameters
    ----------
    dy : CUDA array, shape (..., n)
    x : CUDA array, shape (..., 2n)
        Both of one dtype.
    approximate, gate
        As for `geglu`.
    out : CUDA array, shape (..., 2n), optional
        Of the dtype of `x`. May be `x` itself, but not overlap it or `dy` otherwise.

    Returns
    -------
    CUDA array, shape (..., 2n)
        dy·gelu(gate) in the value's half, dy·value·gelu′(gate) in the gate's.

    Raises
    ------
    TypeError, ValueError, ImportError, RuntimeError
        As `geglu`; ValueError if `dy` has another shape than (..., n).
    """
    from .launch import serve_gate_backward

    return serve_gate_backward(_STEMS[form_number(approximate)], dy, x, _gate_first(gate), out)


def _gate_first(gate: str) -> bool:
    if gate not in ("second", "first"):
        raise ValueError(f"gate: expected 'second' or 'first', got {gate!r}")
    return gate == "first"


def _serve(suffix: str, arrays: dict[str, Any], approximate: str, out: Any) -> Any:
    from .launch import serve

    return serve(_STEMS[form_number(approximate)] + suffix, arrays, out)
