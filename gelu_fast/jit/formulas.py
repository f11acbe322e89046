"""The formulas: every GELU form and derivative of one number, without a branch, so that a loop over them vectorises.

Nothing here, in normal.py, logistic.py and finish.py knows Numba. `make` takes the primitives of a target (fma, div,
magnitude, polynomial, low_bits_as_exponent, widen, narrow, and `function`, which wraps a function for the target:
primitives.py has the CPU's) and returns the eighteen functions built on them. Another target passes its own: for
numba.cuda `function` is ``cuda.jit(device=True, inline="always")``. Constants and helpers are closure variables;
tuples are indexed by `polynomial` alone.

With t = |x| (generate_coefficients.py has the definitions, bounds.py the bounds):

    order 0   f(x)   = max(x, 0) - F        1 + erf or 1 + tanh, which cancel for x < 0, is never formed
    order 1   f'(x)  = x < 0 ? F : 1 - F
    order 2   f''(x) = F
    F = P * exp(-y), P a polynomial in a mapped t (exact form) or a quotient in e = exp(-y) (tanh and quick)

exp(-y) = 2^-n * (1 + q), n taken from the lowest bits of y/ln2 + magic. 2^-n is applied as 2^(shift - n) and 2^-shift,
so that a subnormal is rounded once. A result is `big + small`, where `small` has collected what roundings before it
left over (names end in `_low`).

float32's array kernels have formulas of their own where the CPU can look numbers up in registers (piecewise.py): three
times as fast.

Measured (float32, exact form, one thread of Zen 4 with AVX-512, microseconds for 262,144 elements; torch 143, the C
kernel 61): 195 as it is, at 1.89 ULP over all floats; 187 without q_low, 2.02 ULP; 136 to 147 without all low parts,
3.2 to 4.6 ULP. So 2 ULP cost about a quarter of the speed, and stay. Tried besides: a centred polynomial
for P0 (two operations more for the same error); a = 2 and 2.5 in `rise` (2.1 to 2.9 ULP at the far end); expm1 as
r*polynomial (0.4 ULP more); two elements at a time (spills: 215).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from gelu_fast import coefficients

from .logistic import make_logistic, make_wide
from .normal import make_normal


def constants(dtype: str) -> SimpleNamespace:
    """The numbers of one dtype, rounded to it already."""
    wide = dtype == "f64"
    real: Any = np.float64 if wide else np.float32
    shared = coefficients.F64_CONSTANTS if wide else coefficients.F32_CONSTANTS
    own: dict[str, Any] = coefficients.JIT[dtype]

    def number(text: str) -> Any:
        return real(float.fromhex(text))

    def table(name: str) -> SimpleNamespace:
        part = own[name]
        more = {key: number(part[key]) for key in ("a", "c") if key in part}
        return SimpleNamespace(centre=number(part["centre"]), coefs=tuple(map(number, part["coefs"])), **more)

    out = SimpleNamespace(**{name.lower(): number(text) for name, text in {**shared, **own["constants"]}.items()})
    if wide:
        # 1 - exp(-r) = r + sum c_k r^k, so exp(r) - 1 = r - sum c_k (-r)^k
        table64: dict[str, Any] = coefficients.F64_EXP
        exp = [(-1.0) ** (k + 1) * float.fromhex(c) for k, c in enumerate(table64["coefs"])]
        out.exp = tuple(map(real, exp[2:]))
        out.inv_ln4, out.ln4_hi, out.ln4_lo = real(out.inv_ln2 / 2), real(2 * out.ln2_hi), real(2 * out.ln2_lo)
    else:
        out.exp = table("exp").coefs
        # The C kernels' float32 constants are of 2y.
        for name in ("tanh_slope_hi", "tanh_slope_lo", "tanh_cubic_hi", "tanh_cubic_lo", "quick_hi", "quick_lo"):
            setattr(out, name, real(getattr(out, name) / 2))
        out.inv_ln2, out.ln2_hi, out.ln2_lo = real(2 * out.inv_ln4), real(out.ln4_hi / 2), real(out.ln4_lo / 2)
    # 2*(exp(r/2) - 1) = r + r^2 * sum c_k/2^(k+1) r^k: the same polynomial for the exact form, whose r is of 2y.
    out.exp_half = tuple(real(c / 2.0 ** (k + 1)) for k, c in enumerate(out.exp))
    out.slope = table("slope")
    out.value = table("mills" if wide else "rise")
    shift, bits, bias = (512, 52, 1023) if wide else (64, 23, 127)
    out.magic = real(1.5 * 2.0**bits + bias + shift)
    out.unshift = real(2.0**-shift)
    t_max = coefficients.F64_TABLES if wide else coefficients.F32_TABLES
    out.t_max = {form: number(str(t_max[form, 0]["t_max"])) for form in ("none", "tanh", "quick")}
    out.real = real
    return out


def make(p: Any) -> dict[str, dict[str, Any]]:
    """The functions of one target.

    Parameters
    ----------
    p : object
        Has the primitives as attributes.

    Returns
    -------
    dict
        ``{"float32": {"gelu": …, "gelu_grad": …, …}, "float64": {…}}``, nine names each.
    """
    out: dict[str, dict[str, Any]] = {}
    for name, dtype in (("float32", "f32"), ("float64", "f64")):
        k = constants(dtype)
        out[name] = make_normal(p, k, dtype) | make_logistic(p, k, dtype)
    wide = constants("f64")
    own: dict[str, Any] = coefficients.JIT["f32"]
    wide.exp = tuple(np.float64(float.fromhex(c)) for c in own["wide"]["coefs"])
    out["float32"] |= make_wide(p, constants("f32"), wide)
    return out
