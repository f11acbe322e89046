"""Fits what the CUDA kernels of 16-bit results need beside the other tables. Part of generate_coefficients.py.

    gelu(x) = max(x, 0) - t*2^y,  t = |x|,  y = log2(1 - Phi(t)) = -1 + t*P(t)

P is a minimax polynomial on [0, t_max] for the error of y, which is, but for a factor ln 2, that of the result relative
to itself where x < 0. Beyond t_max the result rounds to -0; 2^y is computed times 2^shift, so that bfloat16's
subnormals are rounded once. cuda/short.py evaluates it.

Inputs misrounded, of all 65,536 (`tests/test_cuda_short.py` counts them): float16 3, and 7 with one degree less;
bfloat16 2, as with one degree more, and 4 with one less. Asking for less where results are subnormal gained nothing.
"""

from __future__ import annotations

from typing import Any

import mpmath as mp

try:
    from .generate_jit_coefficients import fit_weighted
    from .minimax import Real
except ImportError:  # run as a script, from the source tree
    from generate_jit_coefficients import fit_weighted  # type: ignore[import-not-found, no-redef]
    from minimax import Real  # type: ignore[import-not-found, no-redef]

# t_max, shift, degree
SHORT = {"float16": ("5.75", 0, 10), "bfloat16": ("13.6875", 64, 9)}


def slope(t: Real) -> Real:
    """P(t), which is smooth at 0 too."""
    return mp.log(mp.erfc(t / mp.sqrt(2)), 2) / t


def generate_cuda() -> dict[str, dict[str, Any]]:
    """The tables, by the dtype of the result; the numbers are float32."""
    out = {}
    for dtype, (last, shift, degree) in SHORT.items():
        high = mp.mpf(last)
        coefs, error = fit_weighted(slope, lambda t: t, mp.mpf(0), high, mp.mpf(0), degree, 24, degree)
        out[dtype] = {
            "t_max": float(high).hex(), "shift": shift, "interval": (0.0, float(high)), "error": float(f"{error:.2e}"),
            "coefs": [float(c).hex() for c in coefs],
        }  # fmt: skip
    return out


def render_cuda(data: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of coefficients.py."""
    out = ["# For CUDA; generate_cuda_coefficients.py says what it fits. error: of y, absolute.", "CUDA_SHORT = {"]
    for dtype, part in data.items():
        out += [f"    {dtype!r}: {{", *(f"        {k!r}: {v!r}," for k, v in part.items()), "    },"]
    return [*out, "}", ""]
