"""All nine functions for float64 inputs, vectorised, in double-double: relative error below 2^-80.

Independent of the kernels and their tables, like `oracle`: Taylor series throughout, their coefficients from mpmath at
import. exp(-y) goes by a table of exp(-k/64); the Mills ratio M(t) = (1 - Phi(t)) exp(t^2/2) by one series for every
1/32 of t, its coefficients by M' = tM - 1/sqrt(2 pi). Next to a root the derivative's own series takes over.
tests/test_oracle.py compares with mpmath.

A result is value * 2^-shift with the shift chosen so that nothing here is subnormal; `ulps` scales the computed number
likewise. So the error of a subnormal result is as sharp as any other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath as mp
import numpy as np
import numpy.typing as npt

from . import double_double as dd
from .double_double import Pair
from .exact import FORMATS, PRECISION, root, series_at_root

Array = npt.NDArray[Any]

SHIFT = 600               # the scale of tiny arguments and of tiny results, as a power of two
_TINY = 2.0**-400         # below it, t is scaled
_FAR = {"none": 41.0, "tanh": 24.0, "quick": 460.0}  # F is below 2^-1100 from here on
_NEAR, _ROOT_TERMS = 2.0**-20, 6
_EXP_TERMS, _EXP_STEPS = 12, 64.0
_MILLS_STEPS, _MILLS_TERMS, _MILLS_PAIRS = 32.0, 20, 10


def oracle64(x: Array, form: str, order: int) -> tuple[Pair, Array]:
    """One function at float64 numbers.

    Parameters
    ----------
    x : ndarray of float64
        One-dimensional, finite.
    form : {"none", "tanh", "quick"}
    order : {0, 1, 2}

    Returns
    -------
    (high, low), shift
        The value is (high + low) * 2^-shift. Relative error below 2^-80, except where F < 2^-1100.
    """
    t = np.minimum(np.abs(x), _FAR[form])
    tiny = t < _TINY
    if order == 0:
        scaled_t = np.where(tiny, np.ldexp(t, SHIFT), t)
        q, e, n = _logistic(t, form) if form != "none" else _normal(t)
        # x > 0: t*(1 - qe); 1 - qe = q for a logistic. x < 0: -t*q*e, q*e in [2^-1, 1) * 2^-n.
        upper = q if form != "none" else dd.add((np.ones_like(t), 0.0), dd.negative(_ldexp(dd.multiply(q, e), -n)))
        value = dd.times(dd.choose(x > 0, upper, dd.negative(dd.multiply(q, e))), scaled_t)
        far_up = (x > 0) & (np.abs(x) > _FAR[form])
        value = dd.choose(far_up, (np.abs(x), 0.0), value)
        down = np.where(x > 0, 0, n)
        shift = np.where(tiny, SHIFT, 0)
    else:
        p, e, n = _scaled_derivative(t, form, order)
        value = dd.multiply(p, e)
        if order == 1:
            upper = dd.add((np.ones_like(t), 0.0), dd.negative(_ldexp(value, -n)))
            value = dd.choose(x > 0, upper, value)
            down = np.where(x > 0, 0, n)
        else:
            down = n
        shift = np.zeros_like(n)
        _near_root(x, value, down, form, order)
    # The value so far is value * 2^-down * 2^-shift; below 2^-500 the exponent stays out.
    keep = down > 500
    value = _ldexp(value, np.where(keep, SHIFT - down, -down))
    return value, np.where(keep, SHIFT, 0) + shift


def ulps(computed: Array, value: Pair, shift: Array, dtype: str = "float64") -> Array:
    """(computed - value) / ulp(value), signed, with the ulp of `dtype`; `value` and `shift` as of `oracle64`."""
    digits, smallest = FORMATS[dtype]
    _, exponent = np.frexp(np.abs(value[0]))
    # A high part that is a power of two may stand for a value just below it: the smaller ulp, never too lenient.
    exponent = exponent - ((np.abs(value[0]) == np.ldexp(0.5, exponent)) & (value[0] * value[1] <= 0))
    unit = np.maximum(exponent - shift - digits, smallest)
    difference = (np.ldexp(computed, shift) - value[0]) - value[1]
    return np.asarray(np.ldexp(difference, -unit - shift))


def _ldexp(a: Pair, n: Any) -> Pair:
    return np.ldexp(a[0], n), np.ldexp(a[1], n)


# -- exp(-y) ---------------------------------------------------------------------------------------------------------

@cache
def _exp_tables() -> tuple[Any, ...]:
    with mp.workprec(PRECISION):
        log2 = mp.log(2)
        parts, rest = [], log2
        for _ in range(3):  # n <= 2^11 times each of these is exact
            with mp.workprec(40):
                head = +rest
            parts.append(float(head))
            rest -= head
        half = 24
        table = np.array([dd.pair(mp.exp(-mp.mpf(k) / 64)) for k in range(-half, half + 1)])
        terms = [dd.pair(mp.mpf((-1) ** k) / mp.factorial(k)) for k in range(_EXP_TERMS)]
        return parts, half, table[:, 0].copy(), table[:, 1].copy(), terms


def _exp(y: Pair) -> tuple[Pair, Array]:
    """exp(-y) = e * 2^-n for y >= 0."""
    parts, half, high, low, terms = _exp_tables()
    n = np.rint(y[0] / parts[0])
    r = y
    for part in parts:
        r = dd.add(r, (-n * part, np.zeros_like(n)))
    k = np.rint(r[0] * _EXP_STEPS)
    r = dd.add(r, (-k / _EXP_STEPS, np.zeros_like(k)))
    total = np.full_like(n, terms[-1][0])
    for c, _ in terms[-2:6:-1]:
        total = total * r[0] + c
    e: Pair = (total, np.zeros_like(total))
    for c in terms[6::-1]:
        e = dd.add(dd.multiply(e, r), c)
    index = k.astype(np.int64) + half
    return dd.multiply(e, (high[index], low[index])), n.astype(np.int64)


# -- the forms -------------------------------------------------------------------------------------------------------

@cache
def _mills_table() -> Array:
    """For each centre k/32: twenty Taylor coefficients of M, the first ten as pairs; one row per column of numbers."""
    rows = []
    with mp.workprec(PRECISION + 240):  # the recurrence follows the growing solution
        density = 1 / mp.sqrt(2 * mp.pi)
        for k in range(int(_FAR["none"] * _MILLS_STEPS) + 1):
            c = mp.mpf(k) / int(_MILLS_STEPS)
            m = [mp.erfc(c / mp.sqrt(2)) / 2 * mp.exp(c * c / 2)]
            m.append(c * m[0] - density)
            for j in range(1, _MILLS_TERMS - 1):
                m.append((c * m[j] + m[j - 1]) / (j + 1))
            pairs = [dd.pair(v) for v in m]
            rows.append([p[0] for p in pairs] + [p[1] for p in pairs[:_MILLS_PAIRS]])
    return np.ascontiguousarray(np.array(rows).T)


def _half_square(t: Array) -> Pair:
    y = dd.two_product(t, t)
    return 0.5 * y[0], 0.5 * y[1]


def _normal(t: Array) -> tuple[Pair, Pair, Array]:
    """M(t), and exp(-t^2/2) as e * 2^-n."""
    table = _mills_table()
    k = np.rint(t * _MILLS_STEPS)
    u = t - k / _MILLS_STEPS
    index = k.astype(np.int64)
    total = table[_MILLS_TERMS - 1][index]
    for j in range(_MILLS_TERMS - 2, _MILLS_PAIRS - 1, -1):
        total = total * u + table[j][index]
    m: Pair = (total, np.zeros_like(total))
    for j in range(_MILLS_PAIRS - 1, -1, -1):
        m = dd.add(dd.times(m, u), (table[j][index], table[_MILLS_TERMS + j][index]))
    return m, *_exp(_half_square(t))


@cache
def _constants() -> dict[str, Pair]:
    with mp.workprec(PRECISION):
        slope, cubic = 2 * mp.sqrt(2 / mp.pi), mp.mpf(44715) / 1000000
        return {
            "slope": dd.pair(slope), "cubic": dd.pair(slope * cubic), "cubic3": dd.pair(3 * slope * cubic),
            "cubic6": dd.pair(6 * slope * cubic), "quick": dd.pair(mp.mpf(1702) / 1000),
            "density": dd.pair(1 / mp.sqrt(2 * mp.pi)),
        }  # fmt: skip


def _logistic(t: Array, form: str) -> tuple[Pair, Pair, Array]:
    """q = 1/(1 + exp(-v(t))), and exp(-v) as e * 2^-n."""
    c = _constants()
    if form == "quick":
        v = dd.times(c["quick"], t)
    else:
        v = dd.times(dd.add(dd.multiply(c["cubic"], dd.two_product(t, t)), c["slope"]), t)
    e, n = _exp(v)
    return dd.reciprocal(dd.add(_ldexp(e, -n), (np.ones_like(t), 0.0))), e, n


def _scaled_derivative(t: Array, form: str, order: int) -> tuple[Pair, Pair, Array]:
    """P, e, n: the derivative at -t is P * e * 2^-n."""
    c = _constants()
    one = (np.ones_like(t), 0.0)
    square = dd.two_product(t, t)
    if form == "none":
        if order == 2:
            p = dd.add((np.full_like(t, 2.0), 0.0), dd.negative(square))
            return dd.multiply(p, c["density"]), *_exp(_half_square(t))
        m, e, n = _normal(t)
        return dd.add(m, dd.negative(dd.times(c["density"], t))), e, n
    q, e, n = _logistic(t, form)
    small = _ldexp(e, -n)
    slope = dd.add(dd.multiply(c["cubic3"], square), c["slope"]) if form == "tanh" else c["quick"]
    first = dd.times(slope, t)
    plus = dd.add(one, small)
    if order == 1:
        return dd.multiply(dd.multiply(q, q), dd.add(plus, dd.negative(first))), e, n
    twice = dd.add(dd.times(slope, 2.0), dd.multiply(c["cubic6"], square)) if form == "tanh" else dd.times(slope, 2.0)
    minus = dd.add(one, dd.negative(small))
    p = dd.add(dd.multiply(twice, plus), dd.negative(dd.multiply(dd.multiply(first, slope), minus)))
    return dd.multiply(dd.multiply(dd.multiply(q, q), q), p), e, n


@cache
def _series(form: str, order: int) -> tuple[tuple[float, ...], list[Pair]]:
    r = root(form, order)
    with mp.workprec(PRECISION):
        parts = []
        for _ in range(3):
            parts.append(float(r))
            r -= parts[-1]
        return tuple(parts), [dd.pair(c) for c in series_at_root(form, order, _ROOT_TERMS)[1:]]


def _near_root(x: Array, value: Pair, down: Array, form: str, order: int) -> None:
    parts, coefs = _series(form, order)
    negative = -np.abs(x) if order == 2 else x
    where = np.flatnonzero(np.abs(negative - parts[0]) < _NEAR)
    if not where.size:
        return
    d = dd.add((negative[where] - parts[0], np.zeros(where.size)), (-parts[1], -parts[2]))
    total: Pair = (np.full(where.size, coefs[-1][0]), coefs[-1][1])
    for c in coefs[-2::-1]:
        total = dd.add(dd.multiply(total, d), c)
    total = dd.multiply(total, d)
    value[0][where], value[1][where], down[where] = total[0], total[1], 0
