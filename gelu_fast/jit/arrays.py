"""The array kernels behind ``backend="numba"``: contiguous arrays, on one thread or several. No checks."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import prange

from .caching import keep
from .parallel import threads
from .scalars import COMPILED

Array = npt.NDArray[Any]

PIECE = 4096  # elements of a loop of its own: a thread's share is a number of them


class _Writable:
    """An array's memory, as if it could be written: to Numba a read-only array is another type, to be compiled anew."""

    def __init__(self, x: Array) -> None:
        self.base = x
        self.__array_interface__ = {**x.__array_interface__, "data": (x.__array_interface__["data"][0], False)}


@cache
def kernel(name: str, dtype: str, parallel: bool) -> Any:
    """One of the nine functions over x, or ``…_backward`` over dy and x; the last argument takes the result."""
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

    loop = (product_parallel if parallel else product) if backward else (unary_parallel if parallel else unary)
    compiled = numba.njit(loop, parallel=parallel, error_model="numpy", nogil=True)
    return keep(compiled, f"{name}-{dtype}{'-parallel' * parallel}")


def run(name: str, inputs: list[Array], out: Array) -> None:
    """`name` of `inputs`, broadcast already, into `out`; all of out's dtype but for byte order. Any strides, any
    overlap, any byte order."""
    native = out.dtype.newbyteorder("=")
    plain = [_plain(a, native) for a in inputs]
    direct = out.flags.c_contiguous and out.flags.aligned and out.dtype.isnative
    # One kernel reads an element before it writes the same; any other overlap goes by way of a new array.
    if direct and not any(np.may_share_memory(a, out) and a.ctypes.data != out.ctypes.data for a in plain):
        _call(name, plain, out)
        return
    result = np.empty(out.shape, native)
    _call(name, plain, result)
    out[...] = result


def _plain(a: Array, dtype: np.dtype[Any]) -> Array:
    a = np.ascontiguousarray(a, dtype)
    if not a.flags.aligned:
        a = a.copy()
    return a if a.flags.writeable else np.asarray(_Writable(a))


def _call(name: str, inputs: list[Array], out: Array) -> None:
    flat = [a.reshape(-1) for a in (*inputs, out)]
    with threads(out.nbytes) as count:
        kernel(name, out.dtype.name, count > 1)(*flat)
