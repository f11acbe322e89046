"""Arithmetic on unevaluated sums of two float64 arrays, about 104 bits: Dekker's and Knuth's exact operations.

NumPy has no fused multiply-add, so a product's error comes from splitting both factors in halves of 26 bits; no value
here comes near 2^990, where a split would overflow. A number is a pair (high, low), either part may be a scalar.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Pair = tuple[Any, Any]
_SPLIT = 134217729.0  # 2^27 + 1


def two_sum(a: Any, b: Any) -> Pair:
    """a + b exactly."""
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


def quick_two_sum(a: Any, b: Any) -> Pair:
    """a + b exactly, where |a| >= |b| or a is 0."""
    s = a + b
    return s, b - (s - a)


def _split(a: Any) -> Pair:
    c = _SPLIT * a
    high = c - (c - a)
    return high, a - high


def two_product(a: Any, b: Any) -> Pair:
    """a * b exactly, unless the error term underflows."""
    p = a * b
    ah, al = _split(a)
    bh, bl = _split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def add(a: Pair, b: Pair) -> Pair:
    """Relative error below 2^-104 unless the sum cancels, then below 2^-104 of the larger term."""
    s, e = two_sum(a[0], b[0])
    t, f = two_sum(a[1], b[1])
    s, e = quick_two_sum(s, e + t)
    return quick_two_sum(s, e + f)


def multiply(a: Pair, b: Pair) -> Pair:
    """Relative error below 2^-102."""
    p, e = two_product(a[0], b[0])
    return quick_two_sum(p, e + (a[0] * b[1] + a[1] * b[0]))


def times(a: Pair, b: Any) -> Pair:
    """A pair by a float64."""
    p, e = two_product(a[0], b)
    return quick_two_sum(p, e + a[1] * b)


def reciprocal(a: Pair) -> Pair:
    """1 / a by one Newton step on the float64 quotient."""
    q = 1.0 / a[0]
    r = add((np.ones_like(q), 0.0), negative(times(a, q)))  # 1 - a*q, small
    return add((q, np.zeros_like(q)), times(r, q))


def negative(a: Pair) -> Pair:
    return -a[0], -a[1]


def choose(condition: Any, a: Pair, b: Pair) -> Pair:
    return np.where(condition, a[0], b[0]), np.where(condition, a[1], b[1])


def pair(value: Any) -> tuple[float, float]:
    """An mpf as a pair."""
    high = float(value)
    return high, float(value - high)
