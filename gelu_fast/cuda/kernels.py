"""The kernels: one loop over rows and columns for every operation, compiled per operation and dtype on first use.

A row has `head` elements, `vectors` groups of 16 bytes, and the rest; head and rest go one by one, as does everything
where 16-byte accesses are not possible (vectors = 0: strides, alignments that differ). Addresses and strides are int64,
strides in bytes. sums.py has the kernels that add up columns.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from . import device, driver, sums
from .device import OPERANDS, split
from .interface import ITEMSIZE
from .unrolled import unrolled

cuda = driver.module()  # a global: the simulator puts its own in its place while a kernel runs


@cache
def python_kernel(operation: str, dtype: str, packed: bool) -> Any:
    """The kernel before compilation.

    Its parameters, all int64: rows, columns, head, vectors; for every input and then every result, its address and its
    row and column strides; and what sums.py says, for its kernels.
    """
    kind, _ = split(operation)
    if kind in sums.PARAMETERS:
        kernel = sums.python_kernel(operation, dtype, packed)
    else:
        kernel = _element_kernel(operation, kind, dtype, packed)
    kernel.__name__ = kernel.__qualname__ = f"{operation}_{dtype}"
    return kernel


def _element_kernel(operation: str, kind: str, dtype: str, packed: bool) -> Any:
    p = device.target()
    memory = p.make_memory(dtype, packed)
    load, store = memory["load"], memory["store"]
    load_vector, store_vector = memory["load_vector"], memory["store_vector"]
    inputs, results = OPERANDS[kind]
    size = ITEMSIZE[dtype]
    functions = device.elements(operation, dtype)
    one, other = functions[0], functions[-1]
    many, many_others = (unrolled(f, inputs, 16 // size, p.outer) for f in (one, other))

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

    def kernel3(  # type: ignore[no-untyped-def]
        rows, columns, head, vectors, x, x_row, x_column, y, y_row, y_column, z, z_row, z_column,
        out, out_row, out_column, out2, out2_row, out2_column
    ):  # fmt: skip
        first, row = cuda.grid(2)
        step, row_step = cuda.gridsize(2)
        grouped = vectors * (16 // size)
        single = columns - grouped
        while row < rows:
            xs, ys, zs = x + row * x_row, y + row * y_row, z + row * z_row
            outs, outs2 = out + row * out_row, out2 + row * out2_row
            group = first
            while group < vectors:
                at = head * size + group * 16
                a, b, c = load_vector(xs + at), load_vector(ys + at), load_vector(zs + at)
                store_vector(outs + at, many(a, b, c))
                store_vector(outs2 + at, many_others(a, b, c))
                group += step
            k = first
            while k < single:
                column = k if k < head else k + grouped
                a1, b1, c1 = load(xs + column * x_column), load(ys + column * y_column), load(zs + column * z_column)
                store(outs + column * out_column, one(a1, b1, c1))
                store(outs2 + column * out2_column, other(a1, b1, c1))
                k += step
            row += row_step

    return {(1, 1): kernel1, (2, 1): kernel2, (3, 2): kernel3}[inputs, results]


def parameters(operation: str) -> int:
    """How many a kernel has."""
    kind, _ = split(operation)
    return sums.PARAMETERS.get(kind) or 4 + 3 * sum(OPERANDS[kind])


@cache
def kernel(operation: str, dtype: str, packed: bool) -> Any:
    """The kernel, compiled at its first launch or, where caching.py has kept it, loaded."""
    made = cuda.jit(python_kernel(operation, dtype, packed))
    if not driver.is_simulator():
        from . import caching

        caching.keep(made)
    return made


def ptx(operation: str, dtype: str, capability: tuple[int, int]) -> str:
    """PTX for a compute capability; needs NVVM (numba-cuda[cu13]) but neither a GPU nor a driver.

    Parameters
    ----------
    operation : str
        As for `gelu_fast.cuda.device.split`.
    dtype : {"float16", "bfloat16", "float32", "float64"}
    capability : tuple of int
        (9, 0), for one.
    """
    from numba.cuda import types

    source = python_kernel(operation, dtype, capability >= (8, 0))
    code, _ = cuda.compile_ptx(source, (types.int64,) * parameters(operation), cc=capability)
    return str(code)
