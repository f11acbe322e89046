"""Weighted minimax fits by Remez exchange, in mpmath precision, with coefficients rounded to a dtype.

What generate_coefficients.py fits with; not imported at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mpmath as mp
import numpy as np
from numpy.polynomial import Chebyshev

mp.mp.prec = 140
Real = Any  # an mpmath.mpf: the library has no types


# -- rounding --------------------------------------------------------------------------------------------------------

def nearest(value: Real, digits: int) -> Real:
    """`value` rounded to `digits` bits (every number in the tables is far from the subnormals)."""
    with mp.workprec(digits):
        return +value


def next_number(value: Real, digits: int, steps: int) -> Real:
    """The number `steps` places above (below) `value` among those with `digits` bits."""
    _, exp = mp.frexp(value)
    return value + mp.ldexp(steps, exp - digits)


# -- fitting ---------------------------------------------------------------------------------------------------------

@dataclass
class Segment:
    centre: Real
    coefs: list[Real]
    error: float = 0.0     # largest relative error of the rounded polynomial, in exact arithmetic


def remez(samples: list[tuple[Real, Real, Real]], powers: list[int]) -> list[Real]:
    """Minimax coefficients for the given powers of u.

    samples: list of (u, target, weight); minimises max |weight * (sum c_k u^k - target)| over the samples, whose
    order is that of the interval. Stops when the error is level to 1 %, or nothing (F may be a polynomial itself).
    """
    n, last = len(powers), len(samples) - 1
    table = [[u**p for p in powers] for u, _, _ in samples]
    reference = [round(last * (1 - mp.cos(mp.pi * i / n)) / 2) for i in range(n + 1)]
    for _ in range(60):
        matrix, rhs = mp.matrix(n + 1, n + 1), mp.matrix(n + 1, 1)
        for row, i in enumerate(reference):
            _, target, weight = samples[i]
            for col in range(n):
                matrix[row, col] = weight * table[i][col]
            matrix[row, n] = (-1) ** row
            rhs[row] = weight * target
        solution = mp.lu_solve(matrix, rhs)
        coefs, level = [solution[k] for k in range(n)], abs(solution[n])
        errors = [w * (mp.fdot(coefs, row) - f) for row, (_, f, w) in zip(table, samples, strict=True)]
        peak = max(range(last + 1), key=lambda i: abs(errors[i]))
        if abs(errors[peak]) <= max(level * mp.mpf("1.01"), mp.mpf(2) ** -90):
            return coefs
        reference = exchange(reference, errors, level, peak)
    raise ArithmeticError("Remez exchange did not settle")


def exchange(reference: list[int], errors: list[Real], level: Real, peak: int) -> list[int]:
    """The next reference: every local extremum where they alternate often enough, else the peak alone is let in."""
    runs: list[int] = []          # the largest error of each run of one sign
    for i, err in enumerate(errors):
        if runs and (errors[runs[-1]] >= 0) == (err >= 0):
            if abs(err) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)

    def size(k: int) -> Real:
        return abs(errors[runs[k]])

    while len(runs) > len(reference):       # alternation stays: drop the smaller end, or a small run and a neighbour
        weakest = min(range(len(runs)), key=size)
        if len(runs) == len(reference) + 1 or weakest in (0, len(runs) - 1):
            runs.pop(0 if size(0) < size(-1) else -1)
        else:
            beside = weakest - 1 if size(weakest - 1) < size(weakest + 1) else weakest
            del runs[beside:beside + 2]
    if len(runs) == len(reference) and min(abs(errors[i]) for i in runs) >= level * mp.mpf("0.999"):
        return runs
    new = list(reference)
    same = [(errors[i] >= 0) == (errors[peak] >= 0) for i in reference]
    after = next((k for k, i in enumerate(reference) if i > peak), len(reference))
    if after == 0:
        new = new if same[0] else [peak, *new[:-1]]
        new[0] = peak
    elif after == len(reference):
        new = new if same[-1] else [*new[1:], peak]
        new[-1] = peak
    else:
        new[after if same[after] else after - 1] = peak
    return new


def fit(
    func: Callable[[Real], Real],
    a: Real,
    b: Real,
    degree: int,
    digits: int,
    rounded_first: int,
    pinned: Real | None = None,
    keeps_low: bool = False,
) -> Segment:
    """One segment: P(u) = sum coefs[k] u^k near func(centre + u) on [a, b], relative minimax.

    pinned: the root of func in or next to [a, b], which becomes the centre.
    keeps_low: the kernel keeps what rounding P leaves over, for which c0 - P must be exact.
    Float32: of several centres, the one whose evaluation errs least when it is simulated.
    """
    at = partial(fit_at, func=func, a=a, b=b, degree=degree, digits=digits, rounded_first=rounded_first)
    if pinned is not None:
        centre = nearest(pinned, digits)
        given = [mp.mpf(0), nearest(func(mp.mpf(2) ** -200) * mp.mpf(2) ** 200, digits)] if centre == 0 else None
        return at(centre, given=given, is_root=True)
    if digits > 24:
        middle = min((a + b) / 2, a * mp.mpf("1.25") + 1)  # t - centre is to be exact in a long last segment too
        bits = digits - 4 if keeps_low else digits
        return at(good_centre(func, middle, digits, bits))
    found = [at(good_centre(func, a + (b - a) * k / 20, digits, digits)) for k in (2, 5, 8, 10, 12, 15, 18)]
    return min(found, key=lambda s: simulate(s, func, a, b))


def fit_at(
    centre: Real,
    func: Callable[[Real], Real],
    a: Real,
    b: Real,
    degree: int,
    digits: int,
    rounded_first: int,
    given: list[Real] | None = None,
    is_root: bool = False,
) -> Segment:
    """The fit with a given centre. given: leading coefficients, if not to be found."""
    count = 6 * (degree + 4)
    nodes = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]
    nodes = [t for t in nodes if abs(t - centre) > (b - a) / 100000]
    values = [func(t) for t in nodes]
    at_centre = func(centre)
    coefs = list(given) if given else [nearest(at_centre, digits) if at_centre else mp.mpf(0)]
    # The root itself is pinned: what is left of F(c) there is not relative to anything.
    base = at_centre if is_root else coefs[0]

    def known(u: Real) -> Real:
        return base + sum(c * u**p for p, c in enumerate(coefs[1:], 1))

    lossy = False
    while len(coefs) <= degree:
        k = len(coefs)
        samples = []
        for t, v in zip(nodes, values, strict=True):
            u = t - centre
            weight = abs(u**k / v)
            if lossy and k >= 2:
                # Next to the root the error is that of c1's rounding, whatever the rest do: asking for less there
                # would cost accuracy elsewhere.
                weight *= min(1, abs(u) * 8 / (b - a))
            samples.append((u, (v - known(u)) / u**k, weight))
        free = remez(samples, list(range(degree + 1 - k)))
        take = 1 if k < rounded_first else len(free)
        coefs += [nearest(c, digits) for c in free[:take]]
        if k == 1:
            lossy = is_root and abs(coefs[1] / free[0] - 1) > mp.mpf(2) ** -(digits + 4)
    error = max(float(abs(known(t - centre) / v - 1)) for t, v in zip(nodes, values, strict=True))
    return Segment(centre, coefs, error)


def good_centre(func: Callable[[Real], Real], start: Real, digits: int, bits: int) -> Real:
    """A number near `start`, of 20 bits, at which func is nearly a number of so many `bits`.

    Twenty bits, so that t - centre is exact in a wide segment too.
    """
    first = nearest(start, 20)

    def miss(c: Real) -> Real:
        v = func(c)
        return abs(v / nearest(v, bits) - 1)

    return min((next_number(first, 20, k) for k in range(64 if bits == digits else 384)), key=miss)


def simulate(segment: Segment, func: Callable[[Real], Real], a: Real, b: Real) -> float:
    """The largest error of a float32 evaluation (fused multiply-adds), relative, at many points."""
    low, high = float(a), float(b)
    exact = Chebyshev.interpolate(
        np.vectorize(lambda t: float(func(mp.mpf(t)) / func((a + b) / 2))), len(segment.coefs) + 12, [low, high]
    )
    t = np.linspace(low, high, 20001).astype(np.float32)
    u = (t - np.float32(float(segment.centre))).astype(np.float64)
    q = np.full_like(u, float(segment.coefs[-1]))
    for c in segment.coefs[-2:0:-1]:
        q = (q * u + float(c)).astype(np.float32).astype(np.float64)
    c0 = float(segment.coefs[0])
    p = (q * u + c0).astype(np.float32).astype(np.float64)
    truth = exact(t.astype(np.float64)) * float(func((a + b) / 2))
    inside = (t >= low) & (t <= high) & (t > 0)
    ulp = np.ldexp(1.0, np.frexp(np.abs(truth))[1] - 24)
    return float(np.max((np.abs(p - truth) / ulp)[inside]))
