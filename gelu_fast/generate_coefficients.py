"""Fits every approximation and writes ``coefficients.py`` and ``cpu/coefficients.h``.

Run ``python gelu_fast/generate_coefficients.py`` from the repository root after changing anything here (needs mpmath);
``tests/test_coefficients.py`` regenerates in memory and compares.

Every function is reduced to one F(t) on t = |x| >= 0, and every kernel is the same: pick the segment of t, evaluate
its polynomial in u = t - centre, multiply by E = exp(-y(t)) where the segment says so.

    order 0   F = -f(-t) = t*Q(t)    f(x)   = max(x, 0) - F
    order 1   F = f'(-t)             f'(x)  = F if x < 0 else 1 - F
    order 2   F = f''(t), even       f''(x) = F

with y = t^2/2 for the exact form, 2*sqrt(2/pi)*(t + 0.044715 t^3) for tanh, 1.702 t for quick. Near t = 0 the
fit is of F itself (no exponential: the common case is a polynomial and table look-ups), elsewhere of P = F/E.

A relative (weighted) minimax fit is made by Remez exchange (minimax.py); the centre c is chosen so that F(c) is very
nearly a number of the dtype and the leading coefficient costs no rounding; the other leading coefficients are rounded
one at a time, refitting the rest. In a segment that holds a root of F the centre is the number nearest to the root:
then u = t - c is exact, F is close to u*Q(u), and relative accuracy holds at the root too.
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

try:
    from .coefficient_files import render_c, render_python
    from .generate_cuda_coefficients import generate_cuda
    from .generate_jit_coefficients import generate_jit
    from .minimax import Real, fit, fit_at, nearest
except ImportError:  # run as a script, from the source tree
    from coefficient_files import render_c, render_python  # type: ignore[import-not-found, no-redef]
    from generate_cuda_coefficients import generate_cuda  # type: ignore[import-not-found, no-redef]
    from generate_jit_coefficients import generate_jit  # type: ignore[import-not-found, no-redef]
    from minimax import Real, fit, fit_at, nearest  # type: ignore[import-not-found, no-redef]

SQRT2, PI = mp.sqrt(2), mp.pi
TANH_SLOPE = 2 * mp.sqrt(2 / PI)
TANH_CUBIC = mp.mpf("0.044715")
QUICK_SLOPE = mp.mpf("1.702")
FORMS = ("none", "tanh", "quick")

# A layout of tables and its dtype: AVX-512 looks up 16 or 32 numbers in one instruction, the others 4 or 8.
LAYOUTS = {"f32": "f32", "f32x32": "f32", "f64": "f64", "f64x16": "f64"}
DIGITS = {"f32": 24, "f64": 53}

# Where F(t) has rounded to zero for good, for every order: t is clamped there.
T_MAX: dict[str, dict[str, int | str]] = {
    "f32": {"none": "14.75", "tanh": "11.25", "quick": 66},
    "f64": {"none": 39, "tanh": 22, "quick": 444},
}

# float32: z = t*scale + offset picks the segment. Half of them, of equal width, while z < 8 (a fit of F), half twice as
# wide beyond (a fit of P, to be multiplied by E); the last reaches to t_max. Roots lie well inside a segment, by the
# choice of scale and offset.
# quick has poles at t = 1.85i, which its higher degrees pay for; exact and tanh would need only slightly more.
# (form, order): (scale, offset, degree)
SEGMENTS = {"f32": 8, "f32x32": 32}
F32: dict[str, dict[tuple[str, int], tuple[str, str, int]]] = {
    "f32": {
        ("none", 0): ("1.28", "4.0625", 7), ("none", 1): ("1.3125", "4.5", 8), ("none", 2): ("1.3125", "4.65625", 8),
        ("tanh", 0): ("1.3125", "4", 7), ("tanh", 1): ("1.375", "4.5", 8), ("tanh", 2): ("1.375", "4.5625", 8),
        ("quick", 0): ("1.0", "4.25", 9), ("quick", 1): ("1.0", "4.75", 10), ("quick", 2): ("1.0", "4.21875", 10),
    },
    "f32x32": {
        ("none", 0): ("1.125", "4", 5), ("none", 1): ("1.25", "4", 5), ("none", 2): ("1.1875", "4", 6),
        ("tanh", 0): ("1.125", "4", 5), ("tanh", 1): ("1.25", "4", 5), ("tanh", 2): ("1.1875", "4", 6),
        ("quick", 0): ("1", "4", 6), ("quick", 1): ("1.1875", "4", 6), ("quick", 2): ("1", "4", 7),
    },
}  # fmt: skip

# The evaluation must lose less where c1, at the root, happens to lie near the middle of two floats (quick), or where P
# is just above a power of two and the result just below one, so that its error counts double (tanh at t = 3.53).
F32_CAREFUL = {("f32", "quick", 2), ("f32", "tanh", 2)}

# float64: z = t + F64_OFFSET, 32 segments per binade of z: an eighth wide while z < 8 (fits of F), twice as wide up to
# 16 and so on (fits of P). quick's last one begins where E has fallen below 2^-60 and P is t or a constant times it.
F64_OFFSET, F64_PER_BINADE, F64_DEGREE = mp.mpf("4.542"), 32, 10
# For z < 8, AVX-512 has sixteen segments of its own, by t*scale + 4: few enough to look up in two registers.
F64X16_SCALE, F64X16_DEGREE = mp.mpf("1.15"), {"none": 11, "tanh": 11, "quick": 12}
F64_LAST = {"none": 39, "tanh": 22, "quick": 30}
EXP_DEGREE = {"f32": 4, "f64": 11}
# Bits left for n in the logarithm's leading part: n*LN2_HI must be exact. (float32 counts eighths, to 151.)
N_BITS = {"f32": 11, "f64": 11}


# -- the functions ---------------------------------------------------------------------------------------------------

def exponent(form: str, t: Real) -> Real:
    """y(t) with E = exp(-y)."""
    if form == "none":
        return t * t / 2
    return TANH_SLOPE * (t + TANH_CUBIC * t**3) if form == "tanh" else QUICK_SLOPE * t


def scaled(form: str, order: int, t: Real) -> Real:
    """P(t) = F(t) * exp(y(t)), without cancellation except at its own root."""
    if form == "none":
        phi = 1 / mp.sqrt(2 * PI)
        if order == 2:
            return phi * (2 - t * t)
        q = mp.erfc(t / SQRT2) / 2 * mp.exp(t * t / 2)
        return t * q if order == 0 else q - t * phi
    e = mp.exp(-exponent(form, t))
    q = 1 / (1 + e)
    if order == 0:
        return t * q
    slope = TANH_SLOPE * (1 + 3 * TANH_CUBIC * t * t) if form == "tanh" else QUICK_SLOPE
    if order == 1:
        return q * q * (1 + e - t * slope)
    bend = 6 * TANH_SLOPE * TANH_CUBIC * t if form == "tanh" else mp.mpf(0)
    return q**3 * ((2 * slope + t * bend) * (1 + e) - t * slope * slope * (1 - e))


def exp_scale() -> float:
    """The float s in [1, 2) for which s * 2^(j/8), j < 8, are as near to floats as can be: within 2^-27, relative."""
    s = np.arange(1 << 23, dtype=np.float64) * 2.0**-23 + 1
    worst = np.zeros_like(s)
    for j in range(1, 8):
        value = s * 2 ** (j / 8)
        np.maximum(worst, np.abs(value.astype(np.float32) / value - 1), out=worst)
    return float(s[np.argmin(worst)])


EXP_SCALE = exp_scale()


def rescaled(form: str, order: int, t: Real) -> Real:
    """P(t) / EXP_SCALE."""
    return scaled(form, order, t) / EXP_SCALE


def plain(form: str, order: int, t: Real) -> Real:
    """F(t)."""
    return scaled(form, order, t) * mp.exp(-exponent(form, t))


def smallest_normal(form: str, order: int) -> Real:
    """Where |F| falls to the smallest normal float32."""
    tiny, start = -126 * mp.log(2), {"none": "13.3", "tanh": "10", "quick": "54"}[form]
    return mp.findroot(lambda t: mp.log(abs(scaled(form, order, t))) - exponent(form, t) - tiny, mp.mpf(start))


_ROOT_NEAR = {0: 0.0, 1: 0.7518, 2: 1.4142}


def root(form: str, order: int) -> Real:
    """The only root of F on t >= 0."""
    if order == 0:
        return mp.mpf(0)
    return mp.findroot(lambda t: scaled(form, order, t), _ROOT_NEAR[order])


# -- the tables ------------------------------------------------------------------------------------------------------

def f32_intervals(count: int, scale: Real, offset: Real, last: Real) -> list[tuple[Real, Real]]:
    """The (a, b) of a float32 table, in order of t; the last is fitted up to `last`, if it is not narrower."""
    edges = [start * (1 + mp.mpf(2 * k) / count) for start in (4, 8) for k in range(count // 2)]
    starts = [max((z - offset) / scale, mp.mpf(0)) for z in edges]
    last = max(last, (16 - offset) / scale)
    return list(zip(starts, [*starts[1:], last], strict=True))


def f64_intervals(last: Real, t_max: Real) -> list[tuple[Real, Real]]:
    """(a, b) of a float64 table; z's leading bits, counted from those of z = offset, are the index."""
    offset = nearest(F64_OFFSET, 53)
    step = mp.mpf(2) ** mp.floor(mp.log(offset, 2)) / F64_PER_BINADE
    z = mp.floor(offset / step) * step
    out = []
    while z - offset < last:
        step = mp.mpf(2) ** mp.floor(mp.log(z, 2)) / F64_PER_BINADE
        out.append((max(z - offset, mp.mpf(0)), z + step - offset))
        z += step
    out[-1] = (out[-1][0], mp.mpf(t_max))
    return out


def make_table(layout: str, form: str, order: int) -> dict[str, Any]:
    """Everything one kernel needs, as plain Python data (hex floats as strings)."""
    dtype = LAYOUTS[layout]
    digits, t_max = DIGITS[dtype], mp.mpf(T_MAX[dtype][form])
    if dtype == "f32":
        scale, offset, degree = F32[layout][form, order]
        scale, offset = nearest(mp.mpf(scale), 24), nearest(mp.mpf(offset), 24)
        plain_below = SEGMENTS[layout] // 2
        # Not to t_max: beyond, where F is subnormal, less accuracy is needed, by more than the extrapolation loses.
        intervals = f32_intervals(SEGMENTS[layout], scale, offset, smallest_normal(form, order))
    elif layout == "f64x16":
        scale, offset, degree = nearest(F64X16_SCALE, 53), mp.mpf(4), F64X16_DEGREE[form]
        plain_below = 16
        edges = [k / scale / 4 for k in range(16)]
        intervals = list(zip(edges, [*edges[1:], 8 - F64_OFFSET], strict=True))
    else:
        scale, offset, degree = mp.mpf(1), nearest(F64_OFFSET, 53), F64_DEGREE
        intervals = f64_intervals(F64_LAST[form], t_max)
        plain_below = sum(a + offset < mp.mpf("7.999") for a, _ in intervals)
    zero = root(form, order)
    segments = []
    for j, (a, b) in enumerate(intervals):
        near_root = a - mp.mpf(2) ** -6 <= zero <= b + mp.mpf(2) ** -6
        func = partial(plain if j < plain_below else scaled if dtype == "f64" else rescaled, form, order)
        rounded_first = degree if dtype == "f32" else 2
        pinned = zero if near_root else None
        keeps_low = dtype == "f64" and j >= plain_below
        segments.append(fit(func, a, b, degree, digits, rounded_first, pinned, keeps_low=keeps_low))
    return {
        "scale": hexed(scale), "offset": hexed(offset), "t_max": hexed(t_max), "degree": degree,
        "plain": plain_below, "careful": (layout, form, order) in F32_CAREFUL,
        "intervals": [(float(a), float(b)) for a, b in intervals],
        "errors": [float(f"{s.error:.2e}") for s in segments],
        "rows": [[hexed(s.centre), *(hexed(c) for c in s.coefs)] for s in segments],
    }  # fmt: skip


def make_exp(dtype: str) -> dict[str, Any]:
    """The exponential's polynomial; relative to the exponential.

    float64: 1 - exp(-r) = r + sum c_k r^k, k >= 2, on |r| <= ln2/2 (and a little over).
    float32: exp(r/2) - 1 = sum c_k r^k, k >= 1, on 0 <= r <= ln4/8 (and a little over), and EXP_SCALE * 2^(j/8).
    """
    degree = EXP_DEGREE[dtype]
    out: dict[str, Any] = {}
    if dtype == "f32":
        low, high = -mp.log(4) / 8 / 100, mp.log(4) / 8 * mp.mpf("1.01")
        s = fit_at(mp.mpf(0), lambda r: mp.exp(r / 2), low, high, degree, DIGITS[dtype], 2, [mp.mpf(1)])
        coefs = [mp.mpf(0), *s.coefs[1:]]
        out["scale"] = EXP_SCALE.hex()
        out["table"] = [float(np.float32(EXP_SCALE * 2 ** (j / 8))).hex() for j in range(8)]
    else:
        high = mp.log(2) / 2 * mp.mpf("1.001")
        low = -high
        s = fit_at(mp.mpf(0), lambda r: mp.exp(-r), low, high, degree, DIGITS[dtype], 2, [mp.mpf(1), mp.mpf(-1)])
        coefs = [mp.mpf(0), mp.mpf(1), *(-c for c in s.coefs[2:])]
    return {"degree": degree, "interval": (float(low), float(high)), "error": float(f"{s.error:.2e}"),
            "coefs": [hexed(c) for c in coefs], **out}  # fmt: skip


def make_constants(dtype: str) -> dict[str, str]:
    """The exponents' constants; *_LO is what rounding *_HI left over. float32's are of w = 2y, so twice as large."""
    digits = DIGITS[dtype]
    log, times = ("LN4", 2) if dtype == "f32" else ("LN2", 1)
    slope, cubic = times * TANH_SLOPE, times * TANH_SLOPE * TANH_CUBIC
    out = {f"INV_{log}": hexed(nearest(1 / (times * mp.log(2)), digits))}
    for name, value, bits in (
        (log, times * mp.log(2), digits - N_BITS[dtype]), ("TANH_SLOPE", slope, 21 if dtype == "f32" else digits),
        ("TANH_CUBIC", cubic, digits), ("QUICK", times * QUICK_SLOPE, digits),
    ):  # fmt: skip
        high = nearest(value, bits)
        out[name + "_HI"], out[name + "_LO"] = hexed(high), hexed(nearest(value - high, digits))
    return out


def hexed(value: Real) -> str:
    return float(value).hex()


def generate() -> dict[str, dict[str, Any]]:
    """All the numbers: {"f32": {...}, "f64": {...}}. About two CPU minutes, spread over the CPUs."""
    keys = [(layout, form, order) for layout in LAYOUTS for form in FORMS for order in (0, 1, 2)]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        tables = dict(zip(keys, pool.map(make_table, *zip(*keys, strict=True)), strict=True))
    return {dtype: {
        "constants": make_constants(dtype), "exp": make_exp(dtype),
        "layouts": {
            layout: {(form, order): tables[layout, form, order] for form in FORMS for order in (0, 1, 2)}
            for layout in LAYOUTS if LAYOUTS[layout] == dtype
        },
    } for dtype in DIGITS}  # fmt: skip


# -- writing ---------------------------------------------------------------------------------------------------------

def main() -> None:
    here = Path(__file__).parent
    data = generate()
    python = render_python(data, generate_jit(), generate_cuda())
    for path, text in ((here / "coefficients.py", python), (here / "cpu/coefficients.h", render_c(data))):
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(text)
        temporary.replace(path)
        print(f"{path}: {len(text)} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
