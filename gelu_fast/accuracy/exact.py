"""Every GELU form and derivative in mpmath, what all other figures are checked by.

Written without cancellation, so that a working precision of 160 bits gives more than 100 right ones everywhere but
within 2^-60 of a root, down to the last subnormal double's input. Constants are the exact decimals.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mpmath as mp

PRECISION = 160
# dtype name: (significand bits, exponent of the smallest subnormal)
FORMATS = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149), "float64": (53, -1074)}
FORMS = ("none", "tanh", "quick")
# Where each derivative has its only root for x < 0 (order 2 has its mirror image too).
_ROOT_NEAR = {1: -0.75, 2: -1.41}


def exact(x: float, form: str, order: int) -> Any:
    """The value of one function at one number.

    Parameters
    ----------
    x : float or mpf
        Taken as it is; nan, infinities and what is beyond 1000 give the limits.
    form : {"none", "tanh", "quick"}
    order : {0, 1, 2}
        0 is GELU itself, 1 and 2 its derivatives.

    Returns
    -------
    mpf
        To better than 2^-100 relative (where `x` is a double).
    """
    with mp.workprec(PRECISION):
        x = mp.mpf(x)
        if not abs(x) <= 1000:  # the limits, to 2^-2400; mpmath's erfc refuses the largest numbers
            return x if mp.isnan(x) or (order == 0 and x > 0) else mp.mpf(order == 1 and x > 0)
        return _exact_form(x, order) if form == "none" else _logistic_form(x, form, order)


def _exact_form(x: Any, order: int) -> Any:
    density = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
    if order == 2:
        return density * (2 - x * x)
    cumulative = mp.erfc(-x / mp.sqrt(2)) / 2
    return x * cumulative if order == 0 else cumulative + x * density


def _logistic_form(x: Any, form: str, order: int) -> Any:
    """x*s(v), with v' and v''; s(v) = 1/(1 + exp(-v)) and s' = s(v)*s(-v), s'' = s'*(s(-v) - s(v))."""
    if form == "tanh":
        slope, cubic = 2 * mp.sqrt(2 / mp.pi), mp.mpf(44715) / 1000000
        v, v1, v2 = slope * (x + cubic * x**3), slope * (1 + 3 * cubic * x**2), 6 * slope * cubic * x
    else:
        v1, v2 = mp.mpf(1702) / 1000, mp.mpf(0)
        v = v1 * x
    up, down = 1 / (1 + mp.exp(-v)), 1 / (1 + mp.exp(v))
    if order == 0:
        return x * up
    if order == 1:
        return up * (1 + x * v1 * down)
    return up * down * (2 * v1 + x * v2 + x * v1 * v1 * (down - up))


@cache
def root(form: str, order: int) -> Any:
    """The only negative root of a derivative, an mpf; order 2, even, has its mirror image too."""
    with mp.workprec(PRECISION):
        return mp.findroot(lambda x: exact(x, form, order), _ROOT_NEAR[order])


@cache
def series_at_root(form: str, order: int, terms: int) -> list[Any]:
    """Taylor coefficients of a derivative about its negative root: [0, a1, a2, ...], mpf."""
    with mp.workprec(PRECISION):
        r = root(form, order)
        # Cauchy's integral over a circle, by the trapezoidal rule: the nearest pole is 1.8 away from the real line.
        count, radius = 128, mp.mpf(1) / 2
        circle = [mp.expjpi(mp.mpf(2 * k) / count) for k in range(count)]
        values = [_complex(r + radius * w, form, order) for w in circle]
        coefs = [mp.mpf(0)]
        for n in range(1, terms):
            total = mp.fsum(v * mp.conj(circle[k * n % count]) for k, v in enumerate(values))
            coefs.append(mp.re(total) / count / radius**n)
        return coefs


def _complex(x: Any, form: str, order: int) -> Any:
    return _exact_form(x, order) if form == "none" else _logistic_form(x, form, order)
