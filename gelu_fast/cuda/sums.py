"""The kernels of ``dbias``, the sums of columns: in an order that the shape alone decides, whatever the grid.

    bias_…_backward     dx, and for every block of `block` rows the sums of its columns
    fold                the sums of blocks of `block` sums, until LAST are left
    total               the sums of these, rounded to the array's dtype

A thread walks down the rows of one block in one column, or in the columns of 16 bytes. A sum is a pair of numbers of
the type of computation: `high` and, apart, what its roundings have lost (`low`, by Knuth's two-sum); so the error is a
few units of the second precision, and float32 needs no double. `low` is nan where `high` is infinite.

In memory the sums are two rows for a block, `high` and `low`, without gaps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import device, driver
from .interface import ITEMSIZE
from .unrolled import unrolled

cuda = driver.module()  # as in kernels.py

# bias_backward: the four, 3 * 4 of operands, block, sums. fold, total: below.
PARAMETERS = {"bias_backward": 18, "fold": 5, "total": 5}
LAST = 64


def block_of(rows: int, columns: int, dtype: str) -> int:
    """The rows of a block: enough blocks to keep a large GPU busy with rows of 16-byte groups, of 8 rows at least."""
    groups = -(-columns * ITEMSIZE[dtype] // 16)
    return max(8, -(-rows // max(1, (1 << 18) // groups)))


def compute_dtype(dtype: str) -> str:
    """Of the sums."""
    return "float64" if dtype == "float64" else "float32"


def python_kernel(operation: str, dtype: str, packed: bool) -> Any:
    """As kernels.python_kernel."""
    if operation == "fold":
        return _fold(dtype)
    return _total(dtype, packed) if operation == "total" else _bias_backward(operation, dtype, packed)


def _additions(p: Any) -> tuple[Any, Any]:
    """high, and low, of (high, low) + x."""

    def high_of(high, x):  # type: ignore[no-untyped-def]
        return high + x

    def low_of(high, low, x):  # type: ignore[no-untyped-def]
        total = high + x
        back = total - high
        return low + ((high - (total - back)) + (x - back))

    return p.outer(high_of), p.outer(low_of)


def _bias_backward(operation: str, dtype: str, packed: bool) -> Any:
    p = device.target()
    memory, held = p.make_memory(dtype, packed), p.make_memory(compute_dtype(dtype), packed)
    load, store = memory["load"], memory["store"]
    load_vector, store_vector = memory["load_vector"], memory["store_vector"]
    store_sum = held["store"]
    size, sum_size = ITEMSIZE[dtype], ITEMSIZE[compute_dtype(dtype)]
    count = 16 // size
    store_sums, zeros = p.make_scatter(compute_dtype(dtype), count), (np.dtype(compute_dtype(dtype)).type(0),) * count
    zero = zeros[0]
    (one,) = device.elements(operation, dtype)
    many = unrolled(one, 3, count, p.outer)
    high_of, low_of = _additions(p)
    highs_of, lows_of = unrolled(high_of, 2, count, p.outer), unrolled(low_of, 3, count, p.outer)

    def kernel(  # type: ignore[no-untyped-def]
        rows, columns, head, vectors, dy, dy_row, dy_column, x, x_row, x_column, bias, bias_row, bias_column,
        dx, dx_row, dx_column, block, sums
    ):  # fmt: skip
        first, index = cuda.grid(2)
        step, index_step = cuda.gridsize(2)
        grouped = vectors * count
        single = columns - grouped
        while index * block < rows:
            start = index * block
            end = min(start + block, rows)
            highs_at = sums + 2 * index * columns * sum_size
            lows_at = highs_at + columns * sum_size
            group = first
            while group < vectors:
                at = head * size + group * 16
                b = load_vector(bias + at)
                highs, lows = zeros, zeros
                row = start
                while row < end:
                    many_x = many(load_vector(dy + row * dy_row + at), load_vector(x + row * x_row + at), b)
                    store_vector(dx + row * dx_row + at, many_x)
                    lows = lows_of(highs, lows, many_x)
                    highs = highs_of(highs, many_x)
                    row += 1
                column = head + group * count
                store_sums(highs_at + column * sum_size, highs)
                store_sums(lows_at + column * sum_size, lows)
                group += step
            k = first
            while k < single:
                column = k if k < head else k + grouped
                b1 = load(bias + column * bias_column)
                high, low = zero, zero
                row = start
                while row < end:
                    one_x = one(
                        load(dy + row * dy_row + column * dy_column), load(x + row * x_row + column * x_column), b1
                    )
                    store(dx + row * dx_row + column * dx_column, one_x)
                    low = low_of(high, low, one_x)
                    high = high_of(high, one_x)
                    row += 1
                store_sum(highs_at + column * sum_size, high)
                store_sum(lows_at + column * sum_size, low)
                k += step
            index += index_step

    return kernel


def _walk(dtype: str) -> Any:
    """(high, low) of one column of the sums, from one block to before another."""
    p = device.target()
    load, size, zero = p.make_memory(dtype, True)["load"], ITEMSIZE[dtype], np.dtype(dtype).type(0)
    high_of, low_of = _additions(p)

    def walk(source, columns, column, index, end):  # type: ignore[no-untyped-def]
        high, low = zero, zero
        while index < end:
            at = source + (2 * index * columns + column) * size
            more = load(at)
            low = low_of(high, low, more) + load(at + columns * size)
            high = high_of(high, more)
            index += 1
        return high, low

    return p.outer(walk)


def _fold(dtype: str) -> Any:
    p = device.target()
    walk, store, size = _walk(dtype), p.make_memory(dtype, True)["store"], ITEMSIZE[dtype]

    def kernel(blocks, columns, block, source, target):  # type: ignore[no-untyped-def]
        column, index = cuda.grid(2)
        step, index_step = cuda.gridsize(2)
        while index * block < blocks:
            k = column
            while k < columns:
                high, low = walk(source, columns, k, index * block, min((index + 1) * block, blocks))
                at = target + (2 * index * columns + k) * size
                store(at, high)
                store(at + columns * size, low)
                k += step
            index += index_step

    return kernel


def _total(dtype: str, packed: bool) -> Any:
    p = device.target()
    walk, store = _walk(compute_dtype(dtype)), p.make_memory(dtype, packed)["store"]

    def kernel(blocks, columns, source, out, out_column):  # type: ignore[no-untyped-def]
        k, index = cuda.grid(2)
        step, _ = cuda.gridsize(2)
        while k < columns and index == 0:
            high, low = walk(source, columns, k, 0, blocks)
            store(out + k * out_column, high + low if low == low else high)
            k += step

    return kernel
