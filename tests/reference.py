"""The high-precision reference: each form by its definition, x*h(x), and the product rule, in 1,500 bits of mpmath.

So many bits make cancellation harmless (1 + tanh is down to 2^-1100 at the end of float64's tail), and nothing is
rearranged: it shares no formula with gelu_fast.accuracy, whose faster references tests/test_oracle.py compares with
this one. The rounding and the ULP are integer arithmetic on mpmath's numbers.
"""

from functools import cache

import mpmath as mp
import numpy as np

BITS = 1500
# dtype name: (significand bits, exponent of the smallest subnormal)
FORMATS = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149), "float64": (53, -1074)}


@cache
def reference(x, form, order):
    """gelu, gelu' or gelu'' (order 0, 1, 2) at a Python float, as an mpf; |x| <= 1000."""
    assert abs(x) <= 1000
    # The exact form needs no more than 300 where nothing but the roots cancels; mpmath's erfc is slow.
    with mp.workprec(300 if form == "none" and abs(x) > 2.0**-60 else BITS):
        h, h1, h2 = _gate(mp.mpf(x), form)
        return (x * h, h + x * h1, 2 * h1 + x * h2)[order]


def backward(dy, x, form):
    """dy * gelu'(x), as an mpf."""
    with mp.workprec(BITS):
        return mp.mpf(dy) * reference(x, form, 1)


def _gate(x, form):
    """h, h', h'' of gelu(x) = x*h(x)."""
    if form == "none":
        density = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
        return mp.erfc(-x / mp.sqrt(2)) / 2, density, -x * density
    if form == "tanh":
        c, k = mp.mpf("0.044715"), mp.sqrt(2 / mp.pi)
        u, u1, u2 = k * (x + c * x**3), k * (1 + 3 * c * x**2), k * 6 * c * x
        y = mp.tanh(u)
        return (1 + y) / 2, u1 * (1 - y * y) / 2, (u2 * (1 - y * y) - 2 * y * (1 - y * y) * u1**2) / 2
    k = mp.mpf("1.702")
    s = 1 / (1 + mp.exp(-k * x))
    return s, k * s * (1 - s), k * k * s * (1 - s) * (1 - 2 * s)


def ulp(value, dtype):
    """The gap of the dtype at |value|; its smallest subnormal below the normal range."""
    digits, smallest = FORMATS[np.dtype(dtype).name]
    _, man, exponent, bits = value._mpf_
    return mp.ldexp(1, max(exponent + bits - digits, smallest) if man else smallest)


def ulp_error(computed, exact, dtype):
    """|computed - exact| / ulp(exact), a float."""
    with mp.workprec(BITS):
        return float(abs(mp.mpf(float(computed)) - exact) / ulp(exact, dtype))


def round_half_even(value, dtype):
    """An mpf rounded once to float16, bfloat16 or float32, as a Python float; nothing here overflows."""
    sign, man, exponent, bits = value._mpf_
    digits, smallest = FORMATS[np.dtype(dtype).name]
    drop = max(exponent + bits - digits, smallest) - exponent  # bits below the last place
    if drop > 0:
        man, rest = divmod(man, 1 << drop)
        half = 1 << (drop - 1)
        man += rest > half or (rest == half and man % 2 == 1)
        exponent += drop
    rounded = float(mp.ldexp(int(man), exponent))
    return -rounded if sign else rounded
