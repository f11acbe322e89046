"""What counts as a right answer: a float64 reference, our ULP bounds, and what peers are known to get wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .contenders import load
from .work import FLOAT64, Work

Array = npt.NDArray[Any]

# Stored mantissa bits, exponent of the smallest subnormal, machine epsilon.
_FORMATS = {
    "float16": (10, -24, 2.0**-10),
    "bfloat16": (7, -133, 2.0**-7),
    "float32": (23, -149, 2.0**-23),
    "float64": (52, -1074, 2.0**-52),
}
# Ours, in ULP of the result. 16-bit results are float32 ones rounded once: half a unit, and a little for the second
# rounding. Their backward multiplies before that rounding.
_FORWARD = {"float16": 0.501, "bfloat16": 0.501, "float32": 2.0, "float64": 2.0}
_BACKWARD = {"float16": 1.002, "bfloat16": 1.002, "float32": 4.5, "float64": 4.5}
# In float64 the reference is worse than what it judges: scipy's erfcx alone is off by 7 ULP. So everything is held to
# the bound and this much more, which tells a wrong kernel, and a sample, by mpmath, to the bound itself.
_REFERENCE = {"float64": 12.0}
_SAMPLE = 64
# Next to the derivative's root, near −0.752 in all forms, the bound is absolute: this times |dy|.
_ROOT, _NEAR = -0.752, 2.0**-6 + 2.0**-9
_AT_ROOT = {"float16": 2.0**-26, "bfloat16": 2.0**-26, "float32": 2.0**-26, "float64": 2.0**-54}
# Peers: absolute, times max(1, |result|). Those of float32 return 0 below −6 and are off by up to 1.2e-6 elsewhere
# (torch's exact form with AVX-512); the wrong formula is off by 4.7e-4 (tanh for exact) or 2e-2 (quick). Those of 16
# bits may round several times.
_PEERS = {"float16": 4 * 2.0**-10, "bfloat16": 4 * 2.0**-7, "float32": 4e-6, "float64": 1e-14}
_PIECE = 1 << 18
_EXTENDED = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant


@dataclass(frozen=True)
class Verdict:
    """How far a result is from the reference.

    Attributes
    ----------
    passed : bool
    max_abs, max_ulp : float
        Largest error, absolute and in units of the last place of the dtype at the exact result.
    bound : str
        What it was held to.
    checked : int
        How many elements were compared.
    """

    passed: bool
    max_abs: float
    max_ulp: float
    bound: str
    checked: int


def reference(work: Work, x: Array, dy: Array | None = None) -> Array:
    """The exact result in float64, for the values that the arrays hold.

    Parameters
    ----------
    work : Work
    x, dy : ndarray
        Of any float dtype.

    Returns
    -------
    ndarray of float64
        Forward: relative error below 1e-13, in the exact form of 12 ULP. Backward: 1e-15 of |dy| near the root.
    """
    out = np.empty(x.shape)
    with np.errstate(all="ignore"):
        for start in range(0, x.size, _PIECE):
            piece = slice(start, start + _PIECE)
            wide = x[piece].astype(np.float64)
            t = np.minimum(np.abs(wide), 1000.0)  # beyond that every form is x or 0
            value, slope = _exact(wide, t, work.dtype) if work.form == "none" else _logistic(wide, t, work.form)
            if work.backward:
                assert dy is not None
                np.multiply(dy[piece].astype(np.float64), slope, out=out[piece])
            else:
                out[piece] = value
    return out


def _exact(x: Array, t: Array, dtype: str) -> tuple[Array, Array]:
    # A rounded t² would cost exp(−t²/2) many units. That of a float32 is exact in float64; a float64's is taken in
    # extended precision where there is one, at ten times the cost.
    square = t * t if dtype != "float64" else t.astype(np.longdouble) ** 2
    e = np.exp(-0.5 * square).astype(np.float64)
    upper = 0.5 * load("scipy.special").erfcx(t * math.sqrt(0.5)) * e
    tail = upper - t * e / math.sqrt(2 * math.pi)
    return np.where(x > 0, x * (1 - upper), -t * upper), np.where(x > 0, 1 - tail, tail)


def _logistic(x: Array, t: Array, form: str) -> tuple[Array, Array]:
    """x·σ(v) and its derivative σ(v)·(1 + x·v′·σ(−v)), from e = exp(−|v|)."""
    if form == "tanh":
        slope = 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * t * t)
        e = np.exp(-2 * math.sqrt(2 / math.pi) * t * (1 + 0.044715 * t * t))
    else:
        slope = np.full_like(t, 1.702)
        e = np.exp(-1.702 * t)
    q = 1 / (1 + e)
    near, far = q * (1 + t * slope * e * q), e * q * (1 - t * slope * q)
    return np.where(x > 0, x * q, -t * e * q), np.where(x > 0, near, far)


def check(
    work: Work, x: Array, dy: Array | None, y: Array, exact: Array, *, ours: bool, step: int = 1
) -> Verdict:
    """Compare a result with the reference.

    Parameters
    ----------
    work : Work
    x, dy : ndarray of shape (n,)
        What the contender was given; `dy` for a backward work.
    y : ndarray of shape (n,)
        What it returned.
    exact : ndarray of shape (n,)
        From `reference`.
    ours : bool
        Hold it to the ULP bound; peers only to an absolute error that tells a wrong formula.
    step : int
        Compare every `step`-th element.

    Returns
    -------
    Verdict
    """
    if y.shape != x.shape or y.dtype != x.dtype:
        return Verdict(False, math.inf, math.inf, f"expected {x.dtype}{x.shape}, got {y.dtype}{y.shape}", 0)
    passed, worst_abs, worst_ulp = True, 0.0, 0.0
    for start in range(0, x.size, _PIECE * step):
        piece = slice(start, start + _PIECE * step, step)
        part = None if dy is None else dy[piece]
        with np.errstate(all="ignore"):
            error = np.abs(y[piece].astype(np.float64) - exact[piece])
            unit = _unit(exact[piece], work.dtype)
            allowed = _allowed_ours(work, x[piece], part, unit) if ours else _allowed_peer(work, part, exact[piece])
            passed = passed and bool(np.all(error <= allowed))  # false for nan
        worst_abs = max(worst_abs, float(np.nan_to_num(error, nan=math.inf).max()))
        worst_ulp = max(worst_ulp, float(np.nan_to_num(error / unit, nan=math.inf).max()))
    checked = len(range(0, x.size, step))
    if not ours:
        return Verdict(passed, worst_abs, worst_ulp, f"{_PEERS[work.dtype]:.0e} absolute", checked)
    bound = f"{_ulps(work)} ULP"
    if _reference(work):
        bound += f" + {_reference(work)} of the reference"
        if passed and work == FLOAT64:
            bound = f"{_ulps(work)} ULP on {_SAMPLE} elements, {bound} on the others"
            worst_ulp = _sampled(x, y)
            passed = worst_ulp <= _ulps(work)
    return Verdict(passed, worst_abs, worst_ulp, bound, checked)


def _sampled(x: Array, y: Array) -> float:
    """Largest error in ULP of the exact form in float64, by mpmath, of some elements over the whole length."""
    mp = load("mpmath").mp
    worst = 0.0
    for i in np.linspace(0, x.size - 1, min(x.size, _SAMPLE)).astype(int):
        with mp.workprec(200):
            exact = mp.mpf(float(x[i])) * mp.ncdf(float(x[i]))
            unit = float(_unit(np.float64(exact), "float64"))
            worst = max(worst, float(abs(mp.mpf(float(y[i])) - exact) / unit))
    return worst


def _ulps(work: Work) -> float:
    return (_BACKWARD if work.backward else _FORWARD)[work.dtype]


def _reference(work: Work) -> float:
    return _REFERENCE.get(work.dtype, 0.0)


def _unit(exact: Array | np.float64, dtype: str) -> Array:
    bits, least, _ = _FORMATS[dtype]
    exponent = np.frexp(exact)[1] - 1 - bits
    return np.asarray(np.ldexp(1.0, np.maximum(exponent, least)))


def _allowed_ours(work: Work, x: Array, dy: Array | None, unit: Array) -> Array:
    own = _reference(work)
    wide = x.astype(np.float64)
    allowed = (_ulps(work) + (own if _EXTENDED or not own else own + wide * wide)) * unit
    if dy is None:
        return np.asarray(allowed)
    near = np.abs(wide - _ROOT) < _NEAR
    absolute = _AT_ROOT[work.dtype] * np.abs(dy.astype(np.float64)) + 0.5 * unit
    return np.where(near, np.maximum(allowed, absolute), allowed)


def _allowed_peer(work: Work, dy: Array | None, exact: Array) -> Array:
    scale = np.maximum(1.0, np.abs(exact))
    if dy is not None:
        scale = np.maximum(scale, np.abs(dy.astype(np.float64)))
    return np.asarray(_PEERS[work.dtype] * scale)
