"""The kernels: one loop over rows and columns for every operation, compiled per operation and dtype on first use.

A row has `head` elements, `vectors` groups of 16 bytes, and the rest; head and rest go one by one, as does everything
where 16-byte accesses are not possible (vectors = 0: strides, alignments that differ). Addresses and strides are int64,
strides in bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from . import device, driver
from .interface import ITEMSIZE

cuda = driver.module()  # a global: the simulator puts its own in its place while a kernel runs


def unrolled(function: Any, inputs: int, count: int, wrap: Any) -> Any:
    """`function` over tuples of `count` elements, without a loop: one would index a tuple in local memory."""
    if inputs == 1:

        def pair(a):  # type: ignore[no-untyped-def]
            return function(a[0]), function(a[1])

        def four(a):  # type: ignore[no-untyped-def]
            return function(a[0]), function(a[1]), function(a[2]), function(a[3])

        def eight(a):  # type: ignore[no-untyped-def]
            return (function(a[0]), function(a[1]), function(a[2]), function(a[3]),
                    function(a[4]), function(a[5]), function(a[6]), function(a[7]))  # fmt: skip

        return wrap({2: pair, 4: four, 8: eight}[count])

    def pair2(a, b):  # type: ignore[no-untyped-def]
        return function(a[0], b[0]), function(a[1], b[1])

    def four2(a, b):  # type: ignore[no-untyped-def]
        return function(a[0], b[0]), function(a[1], b[1]), function(a[2], b[2]), function(a[3], b[3])

    def eight2(a, b):  # type: ignore[no-untyped-def]
        return (function(a[0], b[0]), function(a[1], b[1]), function(a[2], b[2]), function(a[3], b[3]),
                function(a[4], b[4]), function(a[5], b[5]), function(a[6], b[6]), function(a[7], b[7]))  # fmt: skip

    return wrap({2: pair2, 4: four2, 8: eight2}[count])


@cache
def python_kernel(operation: str, dtype: str, packed: bool) -> Any:
    """The kernel before compilation.

    Its parameters, all int64: rows, columns, head, vectors; for every input and then the result, its address and its
    row and column strides.
    """
    p = device.target()
    memory = p.make_memory(dtype, packed)
    load, store = memory["load"], memory["store"]
    load_vector, store_vector = memory["load_vector"], memory["store_vector"]
    inputs = 1 if device.split(operation)[0] == "unary" else 2
    one = device.element(operation, dtype)
    size = ITEMSIZE[dtype]
    many = unrolled(one, inputs, 16 // size, p.outer)

    def kernel1(  # type: ignore[no-untyped-def]
        rows, columns, head, vectors, x, x_row, x_column, out, out_row, out_column
    ):
        first, row = cuda.grid(2)
        step, row_step = cuda.gridsize(2)
        grouped = vectors * (16 // size)
        single = columns - grouped
        while row < rows:
            xs, outs = x + row * x_row, out + row * out_row
            group = first
            while group < vectors:
                at = head * size + group * 16
                store_vector(outs + at, many(load_vector(xs + at)))
                group += step
            k = first
            while k < single:
                column = k if k < head else k + grouped
                store(outs + column * out_column, one(load(xs + column * x_column)))
                k += step
            row += row_step

    def kernel2(  # type: ignore[no-untyped-def]
        rows, columns, head, vectors, x, x_row, x_column, y, y_row, y_column, out, out_row, out_column
    ):
        first, row = cuda.grid(2)
        step, row_step = cuda.gridsize(2)
        grouped = vectors * (16 // size)
        single = columns - grouped
        while row < rows:
            xs, ys, outs = x + row * x_row, y + row * y_row, out + row * out_row
            group = first
            while group < vectors:
                at = head * size + group * 16
                store_vector(outs + at, many(load_vector(xs + at), load_vector(ys + at)))
                group += step
            k = first
            while k < single:
                column = k if k < head else k + grouped
                store(outs + column * out_column, one(load(xs + column * x_column), load(ys + column * y_column)))
                k += step
            row += row_step

    kernel = kernel1 if inputs == 1 else kernel2
    kernel.__name__ = kernel.__qualname__ = f"{operation}_{dtype}"
    return kernel


def parameters(operation: str) -> int:
    return 10 if device.split(operation)[0] == "unary" else 13


@cache
def kernel(operation: str, dtype: str, packed: bool) -> Any:
    """The kernel, compiled at its first launch."""
    return cuda.jit(python_kernel(operation, dtype, packed))


def ptx(operation: str, dtype: str, capability: tuple[int, int]) -> str:
    """PTX for a compute capability; needs NVVM (numba-cuda[cu13]) but neither a GPU nor a driver.

    Parameters
    ----------
    operation : str
        As for `gelu_fast.cuda.device.element`.
    dtype : {"float16", "bfloat16", "float32", "float64"}
    capability : tuple of int
        (9, 0), for one.
    """
    from numba.cuda import types

    source = python_kernel(operation, dtype, capability >= (8, 0))
    code, _ = cuda.compile_ptx(source, (types.int64,) * parameters(operation), cc=capability)
    return str(code)
