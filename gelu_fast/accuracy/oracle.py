"""A float64 evaluation of all nine functions for float32 inputs, vectorised, relative error below 2^-40 everywhere.

Independent of the kernels and their tables: scipy's erfcx and NumPy's exp. A float32 squared is an exact float64, so
exp(-x^2/2) keeps its accuracy down to the last subnormal; 2 - x^2 is exact next to its root. Where a derivative
cancels, within 2^-5 of its root, its Taylor series takes over, the distance to the root being exact to 2^-106.
tests/test_oracle.py compares with mpmath; what limits it is tanh's exponent, 110 * 2^-52 relative at the far end.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx

from .exact import root, series_at_root

Array = npt.NDArray[Any]

TANH_SLOPE = 2 * math.sqrt(2 / math.pi)
TANH_CUBIC = TANH_SLOPE * 0.044715
QUICK_SLOPE = 1.702
_DENSITY = 1 / math.sqrt(2 * math.pi)
_NEAR = 2.0**-5
_TERMS = 16


def oracle(x: Array, form: str, order: int) -> Array:
    """One function at float32 numbers.

    Parameters
    ----------
    x : ndarray of float32
        One-dimensional.
    form : {"none", "tanh", "quick"}
    order : {0, 1, 2}

    Returns
    -------
    ndarray of float64
        Relative error below 2^-40; what underflows below 2^-1022 is near 0. The limits at infinities; nan at nan.
    """
    with np.errstate(all="ignore"):  # underflow, and signalling nans
        wide = x.astype(np.float64)
        # Beyond 1000 every form is x or 0 or 1 to more than float64 holds; infinities would make nan of 0*inf.
        t = np.minimum(np.abs(wide), 1000.0)
        out = _exact_form(wide, t, order) if form == "none" else _logistic_form(wide, t, form, order)
        if order:
            _near_root(wide, out, form, order)
    return out


def _exact_form(x: Array, t: Array, order: int) -> Array:
    e: Array = np.exp(-0.5 * (t * t))
    if order == 2:
        return np.asarray(e * _DENSITY * (2 - t * t))
    q: Array = 0.5 * erfcx(t * math.sqrt(0.5))
    if order == 0:
        return np.where(x > 0, x * (1 - q * e), -t * q * e)
    tail: Array = e * (q - t * _DENSITY)
    return np.where(x > 0, 1 - tail, tail)


def _logistic_form(x: Array, t: Array, form: str, order: int) -> Array:
    """With e = exp(-v(t)), t >= 0: x*s(v) and its derivatives multiplied out, so that only a root cancels."""
    s = t * t
    e = np.exp(-t * (TANH_SLOPE + TANH_CUBIC * s)) if form == "tanh" else np.exp(-QUICK_SLOPE * t)
    q: Array = 1 / (1 + e)
    if order == 0:
        return np.where(x > 0, x * q, -t * e * q)
    slope = TANH_SLOPE + 3 * TANH_CUBIC * s if form == "tanh" else QUICK_SLOPE
    if order == 1:
        return np.asarray(q * q * np.where(x > 0, 1 + e + t * slope * e, e * (1 + e - t * slope)))
    bend = 6 * TANH_CUBIC * s if form == "tanh" else 0.0
    return np.asarray(e * q * q * q * ((2 * slope + bend) * (1 + e) - t * slope * slope * (1 - e)))


@cache
def _series(form: str, order: int) -> tuple[float, float, list[float]]:
    r = root(form, order)
    high = float(r)
    return high, float(r - high), [float(c) for c in series_at_root(form, order, _TERMS)[1:]]


def _near_root(x: Array, out: Array, form: str, order: int) -> None:
    high, low, coefs = _series(form, order)
    negative = -np.abs(x) if order == 2 else x
    where = np.flatnonzero(np.abs(negative - high) < _NEAR)
    if not where.size:
        return
    d = (negative[where] - high) - low
    total = np.full_like(d, coefs[-1])
    for c in coefs[-2::-1]:
        total = total * d + c
    out[where] = total * d
