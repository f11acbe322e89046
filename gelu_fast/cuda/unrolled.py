"""A function of elements as one of tuples of 2, 4 or 8 of them, without a loop: one would index in local memory.

Written out. By halves (slices of the tuples, joined again) it is shorter, and the PTX the same to the letter, but
compiling takes a quarter to two thirds longer.
"""

from __future__ import annotations

from typing import Any


def unrolled(function: Any, inputs: int, count: int, wrap: Any) -> Any:
    """`function`, of one to three inputs, over tuples of `count` elements; wrap: primitives' `function` or `outer`."""
    return wrap((_of_one, _of_two, _of_three)[inputs - 1](function)[count])


def _of_one(function: Any) -> dict[int, Any]:
    def pair(a):  # type: ignore[no-untyped-def]
        return function(a[0]), function(a[1])

    def four(a):  # type: ignore[no-untyped-def]
        return function(a[0]), function(a[1]), function(a[2]), function(a[3])

    def eight(a):  # type: ignore[no-untyped-def]
        return (function(a[0]), function(a[1]), function(a[2]), function(a[3]),
                function(a[4]), function(a[5]), function(a[6]), function(a[7]))  # fmt: skip

    return {2: pair, 4: four, 8: eight}


def _of_two(function: Any) -> dict[int, Any]:
    def pair(a, b):  # type: ignore[no-untyped-def]
        return function(a[0], b[0]), function(a[1], b[1])

    def four(a, b):  # type: ignore[no-untyped-def]
        return function(a[0], b[0]), function(a[1], b[1]), function(a[2], b[2]), function(a[3], b[3])

    def eight(a, b):  # type: ignore[no-untyped-def]
        return (function(a[0], b[0]), function(a[1], b[1]), function(a[2], b[2]), function(a[3], b[3]),
                function(a[4], b[4]), function(a[5], b[5]), function(a[6], b[6]), function(a[7], b[7]))  # fmt: skip

    return {2: pair, 4: four, 8: eight}


def _of_three(function: Any) -> dict[int, Any]:
    def pair(a, b, c):  # type: ignore[no-untyped-def]
        return function(a[0], b[0], c[0]), function(a[1], b[1], c[1])

    def four(a, b, c):  # type: ignore[no-untyped-def]
        return (function(a[0], b[0], c[0]), function(a[1], b[1], c[1]),
                function(a[2], b[2], c[2]), function(a[3], b[3], c[3]))  # fmt: skip

    def eight(a, b, c):  # type: ignore[no-untyped-def]
        return (function(a[0], b[0], c[0]), function(a[1], b[1], c[1]),
                function(a[2], b[2], c[2]), function(a[3], b[3], c[3]),
                function(a[4], b[4], c[4]), function(a[5], b[5], c[5]),
                function(a[6], b[6], c[6]), function(a[7], b[7], c[7]))  # fmt: skip

    return {2: pair, 4: four, 8: eight}
