"""The array kernels behind ``backend="numba"``: contiguous arrays, on one thread or several. No checks.

float32 goes through piecewise.py's loops where the CPU has what they need; the rest through loops over the scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import prange

from gelu_fast.cpu.ufuncs import BYTES_PER_THREAD

from .caching import keep
from .parallel import threads
from .piecewise import span
from .scalars import COMPILED

Array = npt.NDArray[Any]

_NAMES = {np.dtype(name): name for name in ("float32", "float64")}  # dtype.name takes a microsecond
PIECE = 4096  # elements of a loop of its own: a thread's share is a number of them


class _Writable:
    """An array's memory, as if it could be written: to Numba a read-only array is another type, to be compiled anew."""

    def __init__(self, x: Array) -> None:
        self.base = x
        self.__array_interface__ = {**x.__array_interface__, "data": (x.__array_interface__["data"][0], False)}


@cache
def kernel(name: str, dtype: str, parallel: bool) -> Any:
    """One of the nine functions over x, or ``…_backward`` over dy and x; the last argument takes the result."""
    loops = loops_of_vectors(name) if dtype == "float32" and span(name) else loops_of_scalars(name, dtype)
    compiled = numba.njit(loops[parallel], parallel=parallel, error_model="numpy", nogil=True)
    return keep(compiled, f"{name}-{dtype}{'-parallel' * parallel}")


def loops_of_scalars(name: str, dtype: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """Of one thread, and of several."""
    backward = name.endswith("_backward")
    function: Any = COMPILED[dtype][name.removesuffix("_backward") + "_grad" if backward else name]

    def unary(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    def product(dy, x, out):
        for i in range(x.size):
            out[i] = dy[i] * function(x[i])

    def unary_parallel(x, out):
        for piece in prange((x.size + PIECE - 1) // PIECE):
            for i in range(piece * PIECE, min((piece + 1) * PIECE, x.size)):
                out[i] = function(x[i])

    def product_parallel(dy, x, out):
        for piece in prange((x.size + PIECE - 1) // PIECE):
            for i in range(piece * PIECE, min((piece + 1) * PIECE, x.size)):
                out[i] = dy[i] * function(x[i])

    return (product, product_parallel) if backward else (unary, unary_parallel)


def loops_of_vectors(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    function: Any = span(name)

    def unary(x, out):
        function(x, out, 0, x.size)

    def product(dy, x, out):
        function(dy, x, out, 0, x.size)

    def unary_parallel(x, out):
        for piece in prange((x.size + PIECE - 1) // PIECE):
            function(x, out, piece * PIECE, min((piece + 1) * PIECE, x.size))

    def product_parallel(dy, x, out):
        for piece in prange((x.size + PIECE - 1) // PIECE):
            function(dy, x, out, piece * PIECE, min((piece + 1) * PIECE, x.size))

    return (product, product_parallel) if name.endswith("_backward") else (unary, unary_parallel)


def run_plain(name: str, inputs: list[Any], out: Any) -> Any:
    """The common case, in a few tests: native arrays of one dtype and shape, in C order, `out` None, an input or apart.

    Returns the result, or None where it is not that case. (`run` took 15 µs beside the kernel, of which the dtype's
    name, NumPy's broadcasting and ``ctypes.data`` were the most.)
    """
    first = inputs[0]
    if type(first) is not np.ndarray or (dtype := _NAMES.get(first.dtype)) is None or first.ndim == 0:
        return None
    result = np.empty(first.shape, first.dtype) if out is None else out
    for a in (*inputs, result):
        if type(a) is not np.ndarray or a.dtype != first.dtype or a.shape != first.shape or not a.flags.carray:
            return None
    if out is not None and any(a is not out and np.may_share_memory(a, out) for a in inputs):
        return None
    _call(name, dtype, [*inputs, result])
    return result


def run(name: str, inputs: list[Array], out: Array) -> None:
    """`name` of `inputs`, broadcast already, into `out`; all of out's dtype but for byte order. Any strides, any
    overlap, any byte order."""
    native = out.dtype.newbyteorder("=")
    plain = [_plain(a, native) for a in inputs]
    direct = out.flags.c_contiguous and out.flags.aligned and out.dtype.isnative
    # One kernel reads an element before it writes the same; any other overlap goes by way of a new array.
    dtype = _NAMES[native]
    if direct and not any(np.may_share_memory(a, out) and a.ctypes.data != out.ctypes.data for a in plain):
        _call(name, dtype, [*plain, out])
        return
    result = np.empty(out.shape, native)
    _call(name, dtype, [*plain, result])
    out[...] = result


def _plain(a: Array, dtype: np.dtype[Any]) -> Array:
    a = np.ascontiguousarray(a, dtype)
    if not a.flags.aligned:
        a = a.copy()
    return a if a.flags.writeable else np.asarray(_Writable(a))


def _call(name: str, dtype: str, arrays: list[Array]) -> None:
    flat = [a if a.ndim == 1 else a.reshape(-1) for a in arrays]
    size = arrays[-1].nbytes
    if size < 2 * BYTES_PER_THREAD:
        kernel(name, dtype, False)(*flat)
        return
    with threads(size) as count:
        kernel(name, dtype, count > 1)(*flat)
