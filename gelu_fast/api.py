"""The front door: one check of form, dtype, shape and ``out``; then the ufunc. Nothing below checks again."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import ufuncs
from .checks import EXPECTED, FLOATS, as_array, check_out, is_float, is_foreign, result_dtype, unknown_form
from .cuda.interface import is_device_array
from .views import LARGE, over_rows

_GELU = {"none": ufuncs.gelu, "tanh": ufuncs.gelu_tanh, "quick": ufuncs.gelu_quick}
_GRAD = {"none": ufuncs.gelu_grad, "tanh": ufuncs.gelu_tanh_grad, "quick": ufuncs.gelu_quick_grad}
_GRAD2 = {"none": ufuncs.gelu_grad2, "tanh": ufuncs.gelu_tanh_grad2, "quick": ufuncs.gelu_quick_grad2}
_BACKWARD = {
    "none": ufuncs.gelu_backward,
    "tanh": ufuncs.gelu_tanh_backward,
    "quick": ufuncs.gelu_quick_backward,
}
_WITH_GRAD = {
    "none": ufuncs.gelu_with_grad,
    "tanh": ufuncs.gelu_tanh_with_grad,
    "quick": ufuncs.gelu_quick_with_grad,
}

_ndarray, _F32 = np.ndarray, np.dtype(np.float32)


def gelu(x: Any, approximate: str = "none", *, out: Any = None, backend: str | None = None) -> Any:
    """Gaussian error linear unit, element by element.

    Parameters
    ----------
    x : array_like
        Any shape, strides and byte order; float16, bfloat16 (of ml_dtypes), float32 or float64. Integers and bools
        promote as in NumPy's own float ufuncs (int8 and bool to float16, int16 to float32, wider to float64).
    approximate : {"none", "tanh", "quick"}, optional
        ``"none"``: x·Φ(x) = ½x·erfc(−x/√2). ``"tanh"``: ½x·(1 + tanh(√(2/π)(x + 0.044715x³))).
        ``"quick"``: x·σ(1.702x).
    out : ndarray, optional
        Takes the result; its dtype and shape must be the result's. May be `x` itself, or overlap it.
    backend : {None, "cython", "numba", "cuda"}, optional
        None chooses by the type of `x`. ``"numba"`` (needs the ``numba`` extra) serves plain NumPy arrays whose result
        is float32 or float64: float32 with the same bits on AVX2 and AVX-512, float64 within the same bound.

    Returns
    -------
    ndarray or scalar
        Same dtype and shape as `x`; `out` if given. What NumPy returns for a scalar or 0-d input. Array types that
        implement ``__array_ufunc__`` get their own type back.

    Raises
    ------
    TypeError
        If `x` is complex, longdouble, object, string or datetime; if `out` is not an array; if `backend` does not
        serve the dtype or the array type.
    ImportError
        If `backend` is "numba" and Numba is not installed.
    ValueError
        If `approximate` or `backend` is unknown; if `out` has another dtype or shape or is read-only.

    Notes
    -----
    gelu(+inf) = +inf, gelu(−inf) = −0.0 (the limit), nan stays nan; no floating-point warnings. The bound on the
    error, over every input, is 2 ULP in float32 and float64; 16-bit types are computed in float32 and rounded once.
    Source: Hendrycks & Gimpel, https://arxiv.org/abs/1606.08415.
    """
    return _unary(_GELU, x, approximate, out, backend)


def gelu_grad(x: Any, approximate: str = "none", *, out: Any = None, backend: str | None = None) -> Any:
    """First derivative of GELU, element by element.

    Parameters, return value and errors are those of `gelu`.

    Notes
    -----
    gelu′(±inf) = 1, 0. Error bound: 2 ULP in float32 and float64.
    ``"none"``: Φ(x) + x·φ(x). ``"tanh"``, ``"quick"``: σ(v)·(1 + x·v′·σ(−v)) with v = 2√(2/π)(x + 0.044715x³), 1.702x.
    """
    return _unary(_GRAD, x, approximate, out, backend)


def gelu_grad2(x: Any, approximate: str = "none", *, out: Any = None, backend: str | None = None) -> Any:
    """Second derivative of GELU, element by element.

    Parameters, return value and errors are those of `gelu`.

    Notes
    -----
    gelu″(±inf) = 0. Error bound: 2 ULP in float32 and float64. ``"none"``: φ(x)·(2 − x²).
    """
    return _unary(_GRAD2, x, approximate, out, backend)


def gelu_backward(
    dy: Any, x: Any, approximate: str = "none", *, out: Any = None, backend: str | None = None
) -> Any:
    """Gradient with respect to `x` of a loss whose gradient with respect to ``gelu(x)`` is `dy`: dy·gelu′(x), one pass.

    Parameters
    ----------
    dy, x : array_like
        Broadcast and promoted against each other as by any NumPy ufunc; otherwise as `x` of `gelu`.
    approximate, out, backend
        As for `gelu`.

    Returns
    -------
    ndarray or scalar
        Of the common dtype and broadcast shape.

    Raises
    ------
    TypeError, ValueError
        As `gelu`.

    Notes
    -----
    IEEE product, so inf·0 is nan. Error bound: 4.5 ULP (two roundings); equal bits to ``dy * gelu_grad(x)`` in
    float32 and float64.
    """
    try:
        function = _BACKWARD[approximate]
    except (KeyError, TypeError):
        raise unknown_form(approximate) from None
    if (
        backend is None
        and type(x) is type(dy) is _ndarray
        and ((dtype := x.dtype) is _F32 or dtype in FLOATS)
        and dy.dtype is dtype
        and dy.shape == x.shape
    ):
        if x.size >= LARGE and not x.flags.forc and (done := over_rows(function, (dy, x), out)) is not None:
            return done
        if out is None:
            return function(dy, x)
        if type(out) is _ndarray and out.dtype is dtype and out.shape == x.shape:
            try:
                return function(dy, x, out=out)
            except ValueError:  # read-only
                pass
    return _call(function, {"dy": dy, "x": x}, out, backend)


def gelu_with_grad(x: Any, approximate: str = "none") -> tuple[Any, Any]:
    """GELU and its first derivative in one pass over memory.

    Parameters
    ----------
    x, approximate
        As for `gelu`.

    Returns
    -------
    (value, derivative) : tuple of ndarray or scalar
        Equal, bit for bit, to ``gelu(x, approximate), gelu_grad(x, approximate)``.

    Raises
    ------
    TypeError, ValueError
        As `gelu`.
    """
    try:
        function = _WITH_GRAD[approximate]
    except (KeyError, TypeError):
        raise unknown_form(approximate) from None
    if is_foreign(x):  # Dask has no ufuncs of two results
        return _GELU[approximate](x), _GRAD[approximate](x)
    value, derivative = _call(function, {"x": x}, None, None)
    return value, derivative


def _unary(table: dict[str, np.ufunc], x: Any, approximate: str, out: Any, backend: str | None) -> Any:
    try:
        function = table[approximate]
    except (KeyError, TypeError):
        raise unknown_form(approximate) from None
    # The usual call, at a few tenths of a microsecond (_check_out: five).
    if backend is None and type(x) is _ndarray and ((dtype := x.dtype) is _F32 or dtype in FLOATS):
        if x.size >= LARGE and not x.flags.forc and (done := over_rows(function, (x,), out)) is not None:
            return done
        if out is None:
            return function(x)
        if type(out) is _ndarray and out.dtype is dtype and out.shape == x.shape:
            try:
                return function(x, out=out)
            except ValueError:  # read-only
                pass
    return _call(function, {"x": x}, out, backend)


def _call(function: np.ufunc, arrays: dict[str, Any], out: Any, backend: str | None) -> Any:
    """The general case: any array-like, `out`, a backend by name."""
    if backend not in (None, "cython", "numba", "cuda"):
        raise ValueError(f"backend: expected None, 'cython', 'numba' or 'cuda', got {backend!r}")
    if backend == "cuda" or any(map(is_device_array, arrays.values())):
        if backend in ("cython", "numba"):
            raise TypeError(f"backend={backend!r} takes NumPy arrays, got one on a CUDA device; backend=None serves it")
        from .cuda.launch import serve as serve_cuda

        return serve_cuda(function.__name__, arrays, out)
    if is_foreign(*arrays.values()):
        if backend == "numba":
            raise TypeError("backend='numba' takes NumPy arrays, got " + ", ".join(
                f"{name} of type {type(a).__name__}" for name, a in arrays.items()))  # fmt: skip
        return function(*arrays.values()) if out is None else function(*arrays.values(), out=out)
    values = [_numeric(name, a) for name, a in arrays.items()]
    if backend == "numba":
        from .jit.front import serve

        return serve(function.__name__, dict(zip(arrays, values, strict=True)), out)
    if out is None:
        return function(*values)
    check_out(out, np.broadcast_shapes(*(np.shape(v) for v in values)), result_dtype(*values))
    return function(*values, out=out)


def _numeric(name: str, value: Any) -> Any:
    """`value` where it is a Python scalar or NumPy array already (NumPy promotes those best itself), else an array."""
    array = value if isinstance(value, np.ndarray | np.generic) else as_array(name, value)
    if array.dtype.kind in "biu" or is_float(array.dtype):
        return value if isinstance(value, int | float) else array
    raise TypeError(f"{name}: expected {EXPECTED}, got {array.dtype}")
