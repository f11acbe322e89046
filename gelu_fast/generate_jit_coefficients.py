"""Fits what the Numba kernels need beside the C kernels' tables: branch-free, one polynomial for a whole range.

Part of generate_coefficients.py. The definitions of F, P and y stand there; what is fitted here, with t = |x|:

    exp        (exp(r) - 1 - r) / r^2, |r| <= ln2/2 and a little, relative to exp(r): one for float32, one in double
               for float32's callers (`wide`). float64 takes the C kernels' table.
    rise       h in P0(t)/2 = v + v^2*h(v), v = t/(a*t + 4): float32, the exact form's value. v = t/4 next to 0, and a
               chosen so large that v^2*h stays below v.
    mills      P0(t)*(t + c)/t/2 in w = 1/(t + c): float64, the same.
    slope      P1(t)/(t - root)/2 in w = 1/(t + c): both dtypes, the exact form's first derivative.

The rest has closed forms: P2 = (2 - t^2)/sqrt(2 pi) of the exact form, and the logistic forms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp

try:
    from .minimax import Real, nearest, remez
except ImportError:  # run as a script, from the source tree
    from minimax import Real, nearest, remez  # type: ignore[import-not-found, no-redef]

# Where P is multiplied by an exponential that has underflowed; beyond, less accuracy is needed than extrapolation has.
LAST = {"f32": mp.mpf("13.4"), "f64": mp.mpf("38.6")}
DIGITS = {"f32": 24, "f64": 53}
DENSITY = 1 / mp.sqrt(2 * mp.pi)


def mills(t: Real) -> Real:
    """(1 - Phi(t)) * exp(t^2/2)."""
    return mp.erfc(t / mp.sqrt(2)) / 2 * mp.exp(t * t / 2)


def derivative_root() -> Real:
    """Where mills(t) = t * density: the exact form's first derivative is 0 at -t."""
    return mp.findroot(lambda t: mills(t) - t * DENSITY, mp.mpf("0.7518"))


def fit_weighted(
    func: Callable[[Real], Real], weight: Callable[[Real], Real], a: Real, b: Real, centre: Real, degree: int,
    digits: int, rounded_first: int,
) -> tuple[list[Real], float]:  # fmt: skip
    """Coefficients of u = z - centre, minimising the largest weight * |error| on [a, b]; and that largest error.

    The first `rounded_first` are rounded one at a time, the rest being fitted again after each.
    """
    count = 6 * (degree + 4)
    nodes = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * i / (count - 1)) for i in range(count)]
    data = [(z - centre, func(z), weight(z)) for z in nodes if abs(z - centre) > (b - a) / 100000]
    coefs: list[Real] = []
    while len(coefs) <= degree:
        k = len(coefs)
        samples = [(u, (v - mp.polyval(coefs[::-1], u) if coefs else v) / u**k, w * abs(u**k)) for u, v, w in data]
        free = remez(samples, list(range(degree + 1 - k)))
        coefs += [nearest(c, digits) for c in (free[:1] if k < rounded_first else free)]
    return coefs, max(float(abs(w * (v - mp.polyval(coefs[::-1], u)))) for u, v, w in data)


def fit_centred(
    func: Callable[[Real], Real], weight: Callable[[Real], Real], a: Real, b: Real, degree: int, digits: int,
    rounded_first: int,
) -> tuple[Real, list[Real], float]:  # fmt: skip
    """The centre, near the middle, whose rounded coefficients fit best; they; and the error."""
    best: tuple[Real, list[Real], float] | None = None
    for step in range(-4, 5):
        centre = nearest((a + b) * (mp.mpf(1) / 2 + mp.mpf(step) / 64), 10)
        coefs, error = fit_weighted(func, weight, a, b, centre, degree, digits, rounded_first)
        if best is None or error < best[2]:
            best = centre, coefs, error
    assert best is not None
    return best


def exp_table(dtype: str, degree: int) -> dict[str, Any]:
    """degree: of exp; so many minus two of the quotient."""
    low, high = -mp.log(2) / 2 * mp.mpf("1.01"), mp.log(2) / 2 * mp.mpf("1.15")
    coefs, error = fit_weighted(
        lambda r: (mp.exp(r) - 1 - r) / r**2, lambda r: r**2 / mp.exp(r), low, high, mp.mpf(0), degree - 2,
        DIGITS[dtype], 1,
    )  # fmt: skip
    return table(mp.mpf(0), coefs, error, (low, high))


def rise_table(a: Real, degree: int) -> dict[str, Any]:
    def quotient(v: Real) -> Real:
        t = 4 * v / (1 - a * v)
        return mills(t) * t / 2 / v

    high = LAST["f32"] / (a * LAST["f32"] + 4)
    low = high / 10000
    centre, coefs, error = fit_centred(
        lambda v: (quotient(v) - 1) / v, lambda v: v / quotient(v), low, high, degree, 24, degree - 2
    )
    return table(centre, coefs, error, (low, high), a=float(a).hex())


def inverse_table(dtype: str, c: Real, degree: int, of_t: Callable[[Real], Real]) -> dict[str, Any]:
    low, high = 1 / (LAST[dtype] + c), 1 / c

    def func(w: Real) -> Real:
        return of_t(1 / w - c)

    centre, coefs, error = fit_centred(func, lambda w: 1 / abs(func(w)), low, high, degree, DIGITS[dtype], 3)
    return table(centre, coefs, error, (low, high), c=float(c).hex())


def table(centre: Real, coefs: list[Real], error: float, interval: tuple[Real, Real], **more: str) -> dict[str, Any]:
    return {
        **more, "centre": float(centre).hex(), "interval": (float(interval[0]), float(interval[1])),
        "error": float(f"{error:.2e}"), "coefs": [float(c).hex() for c in coefs],
    }  # fmt: skip


def generate_jit() -> dict[str, dict[str, Any]]:
    """All the tables, by dtype and name; and the two constants of the exact form, in a high and a low part."""
    r = derivative_root()

    def slope(t: Real) -> Real:
        return (mills(t) - t * DENSITY) / (t - r) / 2

    out: dict[str, dict[str, Any]] = {}
    for dtype, digits in DIGITS.items():
        constants = {}
        for name, value in (("ROOT", r), ("DENSITY", DENSITY / 2)):
            head = nearest(value, digits)
            constants[name + "_HI"] = float(head).hex()
            constants[name + "_LO"] = float(nearest(value - head, digits)).hex()
        out[dtype] = {"constants": constants}
    out["f32"] |= {
        "exp": exp_table("f32", 6), "wide": exp_table("f64", 7), "rise": rise_table(mp.mpf(3), 11),
        "slope": inverse_table("f32", mp.mpf("2.5"), 9, slope),
    }  # fmt: skip
    out["f64"] |= {
        "mills": inverse_table("f64", mp.mpf(4), 24, lambda t: mills(t) * (t + 4) / 2),
        "slope": inverse_table("f64", mp.mpf(4), 23, slope),
    }  # fmt: skip
    return out


def render_jit(data: dict[str, dict[str, Any]]) -> list[str]:
    """The lines of coefficients.py."""
    out = [
        "# For Numba; generate_jit_coefficients.py says what each fits. Polynomials in the variable minus centre.",
        "JIT = {",
    ]
    for dtype, parts in data.items():
        out.append(f"    {dtype!r}: {{")
        for name, part in parts.items():
            out.append(f"        {name!r}: {{")
            out += [f"            {k!r}: {v!r}," for k, v in part.items()]
            out.append("        },")
        out.append("    },")
    return [*out, "}", ""]
