"""From shapes and strides to what a kernel walks: rows and columns, and how much of a row goes by 16 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Plan:
    """rows, columns; strides: (row, column) in bytes for each operand; head and vectors: see kernels.py."""

    rows: int
    columns: int
    strides: tuple[tuple[int, int], ...]
    head: int
    vectors: int


def order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The axes, from the widest stride to the densest."""
    return tuple(sorted(range(len(shape)), key=lambda k: -abs(strides[k]) if shape[k] > 1 else 0))


def plan(
    shape: tuple[int, ...], strides: list[tuple[int, ...]], addresses: list[int], itemsize: int, last: bool = False
) -> Plan:
    """How to walk operands of one shape, none of it zero.

    Parameters
    ----------
    shape : tuple of int
    strides : list of tuple of int
        For every operand, in bytes, the result last; its strides order the axes. 0 repeats an element.
    addresses : list of int
    itemsize : int
    last : bool
        Whether the columns are the last axis, whatever could be folded.

    Raises
    ------
    ValueError
        If the axes don't fold into two.
    """
    return _plan(shape, tuple(strides), tuple([address % 16 for address in addresses]), itemsize, last)


@lru_cache(maxsize=1024)
def _plan(
    shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...], phases: tuple[int, ...], itemsize: int, last: bool
) -> Plan:
    leading = len(shape) - last
    axes = [(shape[k], tuple(s[k] for s in strides)) for k in order(shape, strides[-1]) if k < leading and shape[k] > 1]
    folded: list[tuple[int, tuple[int, ...]]] = []
    for n, steps in axes:
        if folded and all(wide == step * n for wide, step in zip(folded[-1][1], steps, strict=True)):
            folded[-1] = folded[-1][0] * n, steps
        else:
            folded.append((n, steps))
    most = 1 if last else 2
    if len(folded) > most:
        raise ValueError(
            f"shape {shape} with strides of {', '.join(map(str, strides))} bytes needs {len(folded) + last} nested "
            "loops; at most two are supported: make the array contiguous first (ascontiguousarray, .contiguous())"
        )
    folded = [(1, (0,) * len(strides))] * (most - len(folded)) + folded
    if last:
        folded.append((shape[-1], tuple(s[-1] for s in strides)))
    (rows, row_steps), (columns, column_steps) = folded
    head, vectors = 0, 0
    dense = columns > 1 and all(step == itemsize for step in column_steps)
    if dense and len(set(phases)) == 1 and not any(step % 16 for step in row_steps):
        head = min(-phases[0] % 16 // itemsize, columns)
        vectors = (columns - head) * itemsize // 16
    return Plan(rows, columns, tuple(zip(row_steps, column_steps, strict=True)), head, vectors)
