"""The exact form for results of 16 bits: float32's takes 75 instructions, and a bfloat16 copy leaves time for 29.

    gelu(x) = max(x, 0) - t*2^y,  t = |x|,  y = log2(erfc(t/sqrt(2))/2) = -1 + t*P(t)

generate_cuda_coefficients.py fits P. 2^y is the GPU's own, good to 2^-22.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gelu_fast.coefficients import CUDA_SHORT


def make(p: Any, dtype: str) -> Any:
    """gelu of a float32, exact enough to be rounded to `dtype`; p: the primitives."""
    fma, magnitude, polynomial, exp2 = p.fma, p.magnitude, p.polynomial, p.exp2
    real = np.float32
    table: dict[str, Any] = CUDA_SHORT[dtype]
    coefs = tuple(real(float.fromhex(c)) for c in table["coefs"])
    t_max, shift = real(float.fromhex(table["t_max"])), table["shift"]
    start, unshift = real(shift - 1), real(-(2.0**-shift))
    zero, minus_zero = real(0), real(-0.0)

    @p.function
    def gelu(x):  # type: ignore[no-untyped-def]
        t = magnitude(x)
        t = t_max if t > t_max else t  # nan stays
        f = t * exp2(fma(t, polynomial(t, coefs), start))
        return fma(f, unshift, minus_zero if x < zero else x)

    return gelu
