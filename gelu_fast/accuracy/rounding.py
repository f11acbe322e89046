"""ULPs of float32 from float64 values, and certified rounding to the 16-bit types."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import numpy.typing as npt

from .exact import FORMATS, PRECISION, exact
from .oracle import oracle

Array = npt.NDArray[Any]

ORACLE_ERROR = 2.0**-40


def ulps32(computed: Array, value: Array) -> Array:
    """|computed - value| / ulp(value) with float32's ulp, by way of the exponent field; inf for a nan on one side only.

    A value that is a power of two may stand for one just below it, so the smaller ulp is taken: never too lenient.
    """
    biased = np.maximum((value.view(np.int64) & np.int64(2**63 - 1)) - 1, 0) >> 52
    reciprocal: Array = (2046 - np.maximum(biased - 23, 1023 - 149)) << 52  # of the ulp, a power of two
    with np.errstate(invalid="ignore"):  # inf - inf and nan are dealt with below
        error: Array = np.abs((computed.astype(np.float64) - value) * reciprocal.view(np.float64))
    odd = np.isnan(error)
    if odd.any():
        y, v = computed[odd], value[odd]
        error[odd] = np.where((np.isnan(y) & np.isnan(v)) | (y == v), 0.0, np.inf)
    return error


def quantum(value: Array, dtype: str) -> Array:
    """The place of the last bit of float64 numbers in a narrower format."""
    digits, smallest = FORMATS[dtype]
    return np.asarray(np.ldexp(1.0, np.maximum(np.frexp(value)[1] - digits, smallest)))


def round_half_even(value: Array, dtype: str) -> Array:
    """float64 numbers rounded once to a narrower format; still float64. No overflow: |GELU| is at most |x|."""
    place = quantum(value, dtype)
    return np.asarray(np.rint(value / place) * place)


def correctly_rounded(x: Array, form: str, order: int) -> Array:
    """The exact function at 16-bit numbers, rounded correctly; in float64.

    The oracle's interval of +-2^-40 decides, and mpmath where its ends round apart.
    """
    dtype = x.dtype.name
    value = oracle(x.astype(np.float32), form, order)
    low = round_half_even(value * (1 - ORACLE_ERROR), dtype)
    high = round_half_even(value * (1 + ORACLE_ERROR), dtype)
    result: Array = np.where(np.isfinite(value), low, value)
    for i in np.flatnonzero(np.isfinite(value) & (low != high)):
        result[i] = _decide(exact(float(x[i]), form, order), low[i], high[i], dtype)
    return result


def _decide(value: Any, low: float, high: float, dtype: str) -> float:
    """The nearer of two neighbours; the even one if neither is."""
    middle = (low + high) / 2
    with mp.workprec(PRECISION):  # mpmath rounds even an absolute value to its working precision
        if value == middle:
            return low if (low / abs(high - low)) % 2 == 0 else high
        return low if abs(value) < abs(middle) else high




def exact_ulps(computed: float, value: Any, dtype: str, scale: float = 1.0) -> float:
    """|computed - value| / ulp(value) for an mpf, in mpmath throughout.

    scale: the unit is at least so many smallest subnormals, as `gelu_fast.bounds` has it for backward.
    """
    digits, smallest = FORMATS[dtype]
    with mp.workprec(PRECISION):
        unit = mp.ldexp(max(abs(mp.mpf(scale)), 1), smallest)
        if value:
            unit = max(unit, mp.ldexp(1, int(mp.frexp(value)[1]) - digits))
        return float(abs(mp.mpf(computed) - value) / unit)
