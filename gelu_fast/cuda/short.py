"""The exact form for results of 16 bits: float32's takes 75 instructions, and a bfloat16 copy leaves time for 29.

    gelu(x) = max(x, 0) - t*2^y,  t = |x|,  y = log2(erfc(t/sqrt(2))/2) = -1 + t*P(t)

P: least squares at Chebyshev nodes, rounded to float32. |y| is off by at most 2^-19.6 for t < 4 and 2^-18 up to 5.75
(float16), by 2^-16.5 for t < 9 and 2^-12.7 up to 13.7 (bfloat16). 2^y is the GPU's own, good to 2^-22.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_COEFFICIENTS = {
    "float16": (
        "-0x1.26aec4p+0", "-0x1.d63e6ep-2", "-0x1.ad7d2ap-5", "0x1.c4c60ep-8", "0x1.bd317cp-15", "-0x1.506f2p-12",
        "0x1.901814p-14", "-0x1.10493p-16", "0x1.cf3ce2p-20", "-0x1.ca052cp-24", "0x1.9295fcp-29",
    ),
    "bfloat16": (
        "-0x1.26b8b6p+0", "-0x1.d56530p-2", "-0x1.bab468p-5", "0x1.16f75cp-7", "-0x1.d5f2f4p-11", "0x1.4d8ea2p-15",
        "0x1.2a9f22p-18", "-0x1.09d298p-20", "0x1.7cf08ep-24", "-0x1.33d3e6p-28", "0x1.11d2bp-33", "-0x1.a2c28ep-40",
    ),
}  # fmt: skip
# Beyond it the result rounds to -0; and by how much 2^y is scaled, so that bfloat16's subnormals are rounded once.
_T_MAX, _SHIFT = {"float16": 5.75, "bfloat16": 13.7}, {"float16": 0, "bfloat16": 64}


def make(p: Any, dtype: str) -> Any:
    """gelu of a float32, exact enough to be rounded to `dtype`; p: the primitives."""
    fma, magnitude, polynomial, exp2 = p.fma, p.magnitude, p.polynomial, p.exp2
    real = np.float32
    coefs = tuple(real(float.fromhex(c)) for c in _COEFFICIENTS[dtype])
    t_max, start, unshift = real(_T_MAX[dtype]), real(_SHIFT[dtype] - 1), real(-(2.0 ** -_SHIFT[dtype]))
    zero, minus_zero = real(0), real(-0.0)

    @p.function
    def gelu(x):  # type: ignore[no-untyped-def]
        t = magnitude(x)
        t = t_max if t > t_max else t  # nan stays
        f = t * exp2(fma(t, polynomial(t, coefs), start))
        return fma(f, unshift, minus_zero if x < zero else x)

    return gelu
