"""Weighted minimax fits by Remez exchange, in mpmath precision, with coefficients rounded to a dtype.

What generate_coefficients.py fits with; not imported at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp

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
    order is that of the interval. Stops when the error is level to 1 %.
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
        if abs(errors[peak]) <= level * mp.mpf("1.01"):
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
) -> Segment:
    """One segment: P(u) = sum coefs[k] u^k near func(centre + u) on [a, b], relative minimax.

    pinned: the root of func in or next to [a, b], which becomes the centre.
    """
    centre = good_centre(func, a, b, digits) if pinned is None else nearest(pinned, digits)
    count = 6 * (degree + 4)
    nodes = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]
    nodes = [t for t in nodes if abs(t - centre) > (b - a) / 100000]
    values = [func(t) for t in nodes]
    at_centre = func(centre)
    coefs = [nearest(at_centre, digits) if at_centre else mp.mpf(0)]
    # The root itself is pinned: what is left of F(c) there is not relative to anything.
    base = [at_centre if pinned is not None else coefs[0]]
    while len(coefs) <= degree:
        k = len(coefs)
        samples = []
        for t, v in zip(nodes, values, strict=True):
            u = t - centre
            known = base[0] + sum(c * u**p for p, c in enumerate(coefs[1:], 1))
            samples.append((u, (v - known) / u**k, abs(u**k / v)))
        free = remez(samples, list(range(degree + 1 - k)))
        take = 1 if k < rounded_first else len(free)
        coefs += [nearest(c, digits) for c in free[:take]]
    error = 0.0
    for t, v in zip(nodes, values, strict=True):
        u = t - centre
        known = base[0] + sum(c * u**p for p, c in enumerate(coefs[1:], 1))
        error = max(error, float(abs(known / v - 1)))
    return Segment(centre, coefs, error)


def good_centre(func: Callable[[Real], Real], a: Real, b: Real, digits: int) -> Real:
    """A number near the middle, on the side where |func| is smaller, at which func is nearly a number of the dtype.

    The rounding error of c0 + u*Q is about |u*Q/F| ULP beyond the last addition's half; leaning to the small side
    evens that ratio out over the segment.
    """
    ratio = abs(func(b) / func(a))
    lean = ratio / (1 + ratio) if ratio > 0 else mp.mpf("0.5")
    lean = min(max(lean, mp.mpf("0.3")), mp.mpf("0.7") if b < 16 else mp.mpf(1))
    start = nearest(a + (b - a) * (1 - lean), min(digits, 20))
    best, best_miss = start, mp.inf
    # Steps of 2^-20: neighbouring doubles would not do, as F(c + ulp) - F(c) is about an ulp where F is about t.
    for step in range(48):
        c = next_number(start, digits, step * (2 ** (digits - 20) + 1))
        v = func(c)
        miss = abs(v - nearest(v, digits)) / abs(v)
        if miss < best_miss:
            best, best_miss = c, miss
    return best
