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
import struct
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import mpmath as mp

try:
    from .minimax import Real, fit, fit_at, nearest
except ImportError:  # run as a script, from the source tree
    from minimax import Real, fit, fit_at, nearest  # type: ignore[import-not-found, no-redef]

SQRT2, PI = mp.sqrt(2), mp.pi
TANH_SLOPE = 2 * mp.sqrt(2 / PI)
TANH_CUBIC = mp.mpf("0.044715")
QUICK_SLOPE = mp.mpf("1.702")
FORMS = ("none", "tanh", "quick")

DIGITS = {"f32": 24, "f64": 53}

# Where F(t) has rounded to zero for good, for every order: t is clamped there.
T_MAX: dict[str, dict[str, int | str]] = {
    "f32": {"none": "14.75", "tanh": "11.25", "quick": 66},
    "f64": {"none": 39, "tanh": 22, "quick": 444},
}

# float32: z = t*scale + offset picks the segment. Four of equal width while z < 8 (a fit of F), four twice as wide
# beyond (a fit of P, to be multiplied by E); the last reaches to t_max. The offset puts roots well inside a segment.
# quick has poles at t = 1.85i, which its higher degrees pay for; exact and tanh would need only slightly more.
F32: dict[tuple[str, int], tuple[str, str, int]] = {  # (form, order): (scale, offset, degree)
    ("none", 0): ("1.28", "4.0625", 7), ("none", 1): ("1.3125", "4.5", 8), ("none", 2): ("1.3125", "4.65625", 8),
    ("tanh", 0): ("1.3125", "4", 7), ("tanh", 1): ("1.375", "4.5", 8), ("tanh", 2): ("1.375", "4.5625", 8),
    ("quick", 0): ("1.0", "4.25", 9), ("quick", 1): ("1.0", "4.75", 10), ("quick", 2): ("1.0", "4.21875", 10),
}  # fmt: skip

# Where c1, at the root, happens to lie near the middle of two floats, the evaluation must lose less.
F32_CAREFUL = {("quick", 2)}

# float64: z = t + F64_OFFSET, 32 segments per binade of z: an eighth wide while z < 8 (fits of F), twice as wide up to
# 16 and so on (fits of P). quick's last one begins where E has fallen below 2^-60 and P is t or a constant times it.
F64_OFFSET, F64_PER_BINADE, F64_DEGREE = mp.mpf("4.542"), 32, 10
F64_LAST = {"none": 39, "tanh": 22, "quick": 30}
EXP_DEGREE = {"f32": 6, "f64": 11}
# Bits left for n in ln2's leading part: n*LN2_HI must be exact.
N_BITS = {"f32": 8, "f64": 11}


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


def plain(form: str, order: int, t: Real) -> Real:
    """F(t)."""
    return scaled(form, order, t) * mp.exp(-exponent(form, t))


_ROOT_NEAR = {0: 0.0, 1: 0.7518, 2: 1.4142}


def root(form: str, order: int) -> Real:
    """The only root of F on t >= 0."""
    if order == 0:
        return mp.mpf(0)
    return mp.findroot(lambda t: scaled(form, order, t), _ROOT_NEAR[order])


# -- the tables ------------------------------------------------------------------------------------------------------

def f32_intervals(scale: Real, offset: Real, t_max: Real) -> list[tuple[Real, Real]]:
    """The eight (a, b) of a float32 table, in order of t."""
    edges = [4, 5, 6, 7, 8, 10, 12, 14]
    starts = [max((z - offset) / scale, mp.mpf(0)) for z in edges]
    return list(zip(starts, [*starts[1:], t_max], strict=True))


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


def make_table(dtype: str, form: str, order: int) -> dict[str, Any]:
    """Everything one kernel needs, as plain Python data (hex floats as strings)."""
    digits, t_max = DIGITS[dtype], mp.mpf(T_MAX[dtype][form])
    if dtype == "f32":
        scale, offset, degree = F32[form, order]
        scale, offset = nearest(mp.mpf(scale), 24), nearest(mp.mpf(offset), 24)
        intervals, plain_below = f32_intervals(scale, offset, t_max), 4
    else:
        scale, offset, degree = mp.mpf(1), nearest(F64_OFFSET, 53), F64_DEGREE
        intervals = f64_intervals(F64_LAST[form], t_max)
        plain_below = sum(a + offset < mp.mpf("7.999") for a, _ in intervals)
    zero = root(form, order)
    segments = []
    for j, (a, b) in enumerate(intervals):
        near_root = a - mp.mpf(2) ** -6 <= zero <= b + mp.mpf(2) ** -6
        func = partial(plain if j < plain_below else scaled, form, order)
        rounded_first = degree if dtype == "f32" else 2
        pinned = zero if near_root else None
        segments.append(fit(func, a, b, degree, digits, rounded_first, pinned, keeps_low=j >= plain_below))
    return {
        "scale": hexed(scale), "offset": hexed(offset), "t_max": hexed(t_max), "degree": degree,
        "plain": plain_below, "careful": dtype == "f32" and (form, order) in F32_CAREFUL,
        "intervals": [(float(a), float(b)) for a, b in intervals],
        "errors": [float(f"{s.error:.2e}") for s in segments],
        "rows": [[hexed(s.centre), *(hexed(c) for c in s.coefs)] for s in segments],
    }  # fmt: skip


def make_exp(dtype: str) -> dict[str, Any]:
    """1 - exp(-r) = r + sum c_k r^k, k >= 2, on |r| <= ln2/2 (and a little over); relative to exp(-r)."""
    half = mp.log(2) / 2 * mp.mpf("1.001")
    degree = EXP_DEGREE[dtype]
    s = fit_at(mp.mpf(0), lambda r: mp.exp(-r), -half, half, degree, DIGITS[dtype], 2, [mp.mpf(1), mp.mpf(-1)])
    coefs = [mp.mpf(0), mp.mpf(1), *(-c for c in s.coefs[2:])]
    return {"degree": degree, "interval": (float(-half), float(half)), "error": float(f"{s.error:.2e}"),
            "coefs": [hexed(c) for c in coefs]}  # fmt: skip


def make_constants(dtype: str) -> dict[str, str]:
    """The exponents' constants; *_LO is what rounding *_HI left over."""
    digits = DIGITS[dtype]
    cubic = TANH_SLOPE * TANH_CUBIC
    out = {"INV_LN2": hexed(nearest(1 / mp.log(2), digits))}
    for name, value, bits in (
        ("LN2", mp.log(2), digits - N_BITS[dtype]), ("TANH_SLOPE", TANH_SLOPE, digits),
        ("TANH_CUBIC", cubic, digits), ("QUICK_SLOPE", QUICK_SLOPE, digits),
    ):  # fmt: skip
        high = nearest(value, bits)
        out[name + "_HI"], out[name + "_LO"] = hexed(high), hexed(nearest(value - high, digits))
    return out


def hexed(value: Real) -> str:
    return float(value).hex()


def generate() -> dict[str, dict[str, Any]]:
    """All the numbers: {"f32": {...}, "f64": {...}}. About two CPU minutes, spread over the CPUs."""
    keys = [(dtype, form, order) for dtype in DIGITS for form in FORMS for order in (0, 1, 2)]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        tables = dict(zip(keys, pool.map(make_table, *zip(*keys, strict=True)), strict=True))
    return {dtype: {
        "constants": make_constants(dtype), "exp": make_exp(dtype),
        "tables": {(form, order): tables[dtype, form, order] for form in FORMS for order in (0, 1, 2)},
    } for dtype in DIGITS}  # fmt: skip


# -- writing ---------------------------------------------------------------------------------------------------------

def render_python(data: dict[str, dict[str, Any]]) -> str:
    out = [
        '"""Every number of every approximation; made by generate_coefficients.py, which says what they mean."""',
        "# ruff: noqa",
        "# Per table: rows[segment] = [centre, c0, c1, ...]; the first `plain` segments fit F, the others P.",
        "# errors: of the rounded polynomial, relative.",
        "# exp: 1 - exp(-r) = sum coefs[k]*r**k.", "",
    ]  # fmt: skip
    for dtype, parts in data.items():
        name = dtype.upper()
        out += [f"{name}_CONSTANTS = {{", *(f'    "{k}": "{v}",' for k, v in parts["constants"].items()), "}", ""]
        out += [f"{name}_EXP = {{", *(f'    "{k}": {v!r},' for k, v in parts["exp"].items()), "}", ""]
        out.append(f"{name}_TABLES = {{")
        for key, table in parts["tables"].items():
            out.append(f"    {key!r}: {{")
            out += [f'        "{k}": {table[k]!r},' for k in ("scale", "offset", "t_max", "degree", "plain", "careful")]
            out += [f'        "{k}": [{", ".join(map(repr, table[k]))}],' for k in ("intervals", "errors")]
            out += ['        "rows": [', *(f"            {row!r}," for row in table["rows"]), "        ],", "    },"]
        out += ["}", ""]
    return "\n".join(out)


def render_c(data: dict[str, dict[str, Any]]) -> str:
    """The C header: float tables by column, so that one look-up fetches a coefficient for every lane; double by row.

    A float column is ordered by the low three bits of z's exponent and leading significand bits: z in [8, 16) comes
    first, [4, 8) second.
    """
    out = [
        "/* Made by generate_coefficients.py, which says what the numbers mean. Do not edit. */",
        "#ifndef GF_COEFFICIENTS_H", "#define GF_COEFFICIENTS_H", "", "#include <stdalign.h>", "",
    ]  # fmt: skip
    for dtype, parts in data.items():
        ctype, suffix = ("float", "f") if dtype == "f32" else ("double", "")
        name = dtype.upper()
        out += [f"#define GF_{name}_{k} {v}{suffix}" for k, v in parts["constants"].items()]
        out.append(f"#define GF_{name}_EXP_DEGREE {parts['exp']['degree']}")
        coefs = ", ".join(c + suffix for c in parts["exp"]["coefs"])
        out += [f"static const {ctype} GF_{name}_EXP[] = {{{coefs}}};", ""]
        if dtype == "f64":
            first = struct.unpack(">Q", struct.pack(">d", float(F64_OFFSET)))[0] >> 47
            out += [f"#define GF_F64_FIRST {first:#x} /* z's leading 17 bits at t = 0 */", ""]
        for (form, order), table in parts["tables"].items():
            stem = f"{form}{order}_{dtype}"
            out += [f"#define GF_{k.upper()}_{stem} {table[k]}{suffix}" for k in ("scale", "offset", "t_max")]
            out.append(f"#define GF_DEGREE_{stem} {table['degree']}")
            rows = table["rows"]
            if dtype == "f32":
                out.append(f"#define GF_CAREFUL_{stem} {table['careful']:d}")
                rows = [[rows[(p + 4) % 8][k] for p in range(8)] for k in range(table["degree"] + 2)]
            else:
                out.append(f"#define GF_SEGMENTS_{stem} {len(rows)}")
            out.append(f"static alignas(64) const {ctype} gf_{stem}[{len(rows)}][{len(rows[0])}] = {{")
            out += ["    {" + ", ".join(v + suffix for v in row) + "}," for row in rows]
            out += ["};", ""]
    return "\n".join([*out, "#endif", ""])


def main() -> None:
    here = Path(__file__).parent
    data = generate()
    for path, text in ((here / "coefficients.py", render_python(data)), (here / "cpu/coefficients.h", render_c(data))):
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(text)
        temporary.replace(path)
        print(f"{path}: {len(text)} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
