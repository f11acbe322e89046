"""The public scalars: one Python function per name, which compiled code sees as the formula of its argument's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from . import formulas, primitives
from .piecewise import span

COMPILED = formulas.make(primitives)
# Overloads are inlined like the formulas they call.
INLINED: dict[str, Any] = {"forceinline": True, "error_model": "numpy"}
_FORMS = {"gelu": "x·Φ(x)", "gelu_tanh": "the tanh form", "gelu_quick": "x·σ(1.702x)"}
_ORDERS = ("GELU", "First derivative of GELU", "Second derivative of GELU")

_DOC = """{order}, {form}, of one number, in compiled code or out of it.

    Parameters
    ----------
    x : float32, float64 or integer, or an array of them
        Integers and bools promote to float64. A 0-d array counts as a number; any other array, of any layout, gives a
        new array in C order.

    Returns
    -------
    float32 or float64, or an array of it
        float32 for float32, float64 otherwise.

    Raises
    ------
    numba.TypingError
        In compiled code, for any other type.

    Notes
    -----
    Error bound: 2 ULP{root}. Same limits at ±inf, nan and ±0 as `gelu_fast.gelu` and its derivatives, and the same
    bits wherever the number stands in an array. Formulas: gelu_fast/jit/formulas.py; for an array of float32, on a CPU
    with AVX2 or AVX-512, gelu_fast/jit/piecewise.py, whose last bits may differ from those of a number alone and are
    those of the C kernels for the same instruction set.
    """
_ROOT = "; next to a root (gelu_fast.bounds.NEAR_ROOT), 2⁻²⁶ absolute in float32 and 2⁻⁵⁴ in float64"


def result_type(x: Any) -> Any:
    """The Numba type that one number of type `x` gives, or None."""
    if x in (types.float32, types.float64):
        return x
    return types.float64 if isinstance(x, types.Integer | types.Boolean) else None


def checked_type(name: str, parameter: str, x: Any) -> Any:
    """The Numba type that a number, or an element of an array, of type `x` gives."""
    result = result_type(x.dtype if isinstance(x, types.Array) else x)
    if result is None:
        raise TypingError(f"{name}: {parameter}: expected float32, float64, an integer, or an array of them, got {x}")
    return result


def implementation(name: str, x: Any) -> Callable[..., Any]:
    """What `name` compiles to for a number or array of Numba type `x`."""
    result = checked_type(name, "x", x)
    scalar: Any = COMPILED[str(result)][name]
    if not isinstance(x, types.Array):
        return lambda x: scalar(result(x))
    if x.ndim == 0:
        return lambda x: scalar(result(x[()]))
    dtype = np.dtype(str(result))
    vectors: Any = span(name) if x.dtype == types.float32 else None

    def impl_of_vectors(x):
        flat = x.ravel()  # a copy where x is not in C order
        out = np.empty(flat.size, dtype)
        vectors(flat, out, 0, flat.size)
        return out.reshape(x.shape)

    def impl(x):
        flat = x.ravel()
        out = np.empty(flat.size, dtype)
        for i in range(flat.size):
            out[i] = scalar(result(flat[i]))
        return out.reshape(x.shape)

    return impl_of_vectors if vectors else impl


def _public(name: str) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return interpreted(np.asarray(x) if isinstance(x, list | tuple) else x)

    @overload(function, strict=True, jit_options=INLINED, inline="never")
    def function_overload(x):
        return implementation(name, x)

    @numba.njit(error_model="numpy")
    def interpreted(x):
        return function(x)

    stem, order = name.removesuffix("_grad2").removesuffix("_grad"), name.count("_grad") + name.count("grad2")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = _DOC.format(order=_ORDERS[order], form=_FORMS[stem], root=_ROOT if order else "")
    return function


gelu = _public("gelu")
gelu_grad = _public("gelu_grad")
gelu_grad2 = _public("gelu_grad2")
gelu_tanh = _public("gelu_tanh")
gelu_tanh_grad = _public("gelu_tanh_grad")
gelu_tanh_grad2 = _public("gelu_tanh_grad2")
gelu_quick = _public("gelu_quick")
gelu_quick_grad = _public("gelu_quick_grad")
gelu_quick_grad2 = _public("gelu_quick_grad2")
