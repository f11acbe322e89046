"""The tanh and quick forms: F in e = exp(-y) and 1/(1 + e). Part of formulas.py, which says what the names mean.

    order 0   t*e / (1 + e)
    order 1   e*(1 - z + e) / (1 + e)^2                     z = t*y'
    order 2   e*((a - b) + e*(a + b)) / (1 + e)^3           a = 2y' + t*y'', b = t*y'^2
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .finish import make_finish


def make_logistic(p: Any, k: SimpleNamespace, dtype: str) -> dict[str, Any]:
    """All three orders of float64; of float32, the value."""
    fma, div, polynomial, magnitude, exponent = p.fma, p.div, p.polynomial, p.magnitude, p.low_bits_as_exponent
    real = k.real
    finish0, finish1, finish2 = make_finish(p, k)
    zero, one, two, three = real(0), real(1), real(2), real(3)
    magic, unshift = k.magic, k.unshift
    minus_inv, minus_hi, minus_lo, exp = -k.inv_ln2, -k.ln2_hi, -k.ln2_lo, k.exp
    slope_hi, slope_lo, cubic_hi, cubic_lo = k.tanh_slope_hi, k.tanh_slope_lo, k.tanh_cubic_hi, k.tanh_cubic_lo
    quick_hi, quick_lo = k.quick_hi, k.quick_lo

    @p.function
    def tanh_slope(t):
        """y/t = slope + cubic*t^2 as b + b_low, and t^2 likewise."""
        s = t * t
        s_low = fma(t, t, -s)
        b = fma(cubic_hi, s, slope_hi)
        # b - slope is exact: float32's slope has but 21 bits
        return b, fma(cubic_lo, s, slope_lo) + fma(cubic_hi, s_low, fma(cubic_hi, s, -(b - slope_hi)))

    @p.function
    def tanh_slope_carefully(t):
        s = t * t
        c = cubic_hi * s
        b = slope_hi + c
        back = b - slope_hi
        b_low = (slope_hi - (b - back)) + (c - back)
        c_low = fma(cubic_hi, fma(t, t, -s), fma(cubic_hi, s, -c))
        return b, b_low + (fma(cubic_lo, s, c_low) + slope_lo)

    @p.function
    def quick_slope(t):
        return quick_hi, quick_lo

    @p.function
    def reduced(t, b, b_low):
        """2^(shift - n), q, q_low with exp(-y) = 2^-n * (1 + q)."""
        shifted = fma(t * b, minus_inv, magic)
        n = shifted - magic  # -n
        r = fma(n, minus_lo, fma(-t, b, n * minus_hi))
        r = fma(-t, b_low, r)
        return exponent(shifted), fma(r * r, polynomial(r, exp), r), zero

    @p.function
    def reduced_carefully(t, b, b_low):
        y = t * b
        shifted = fma(y, minus_inv, magic)
        n = shifted - magic  # -n
        head = fma(n, minus_hi, -y)  # exact
        low = fma(n, minus_lo, -fma(t, b_low, fma(t, b, -y)))
        r = head + low
        r_low = (head - r) + low
        h, square = polynomial(r, exp), r * r
        q = fma(square, h, r)
        return exponent(shifted), q, fma(r_low, q, r_low) + fma(square, h, r - q)

    @p.function
    def quotient(n, n_low, d, d_low):
        """(n + n_low) / (d + d_low), rounded once, nearly."""
        w = div(one, d)
        f = n * w
        rest = fma(-f, d, n) + fma(-f, d_low, n_low)
        return fma(rest, w, f)

    @p.function
    def exponential(power, q, q_low):
        """e, 1 + e, each in two parts."""
        s = power * unshift
        e = fma(s, q, s)
        e_low = fma(s, q_low, fma(s, q, s - e))
        d = one + e
        return e, e_low, d, (e - (d - one)) + e_low

    @p.function
    def value(x, t, power, q, q_low):
        _, _, d, d_low = exponential(power, q, q_low)
        n = fma(t, q, t)
        return finish0(x, quotient(n, fma(t, q_low, fma(t, q, t - n)), d, d_low) * power)

    @p.function
    def times(a, a_low, b, b_low):
        c = a * b
        return c, fma(a, b_low, fma(a_low, b, fma(a, b, -c)))

    @p.function
    def plus(a, a_low, b, b_low):
        c = a + b
        back = c - a
        return c, ((a - (c - back)) + (b - back)) + (a_low + b_low)

    @p.function
    def scaled(q, q_low, g, g_low):
        """g * (1 + q)."""
        n = fma(g, q, g)
        return n, fma(g, q, g - n) + fma(g, q_low, fma(g_low, q, g_low))

    @p.function
    def first(x, power, q, q_low, z, z_low):
        e, e_low, d, d_low = exponential(power, q, q_low)
        g, g_low = plus(one, zero, -z, -z_low)
        g, g_low = plus(g, g_low, e, e_low)
        n, n_low = scaled(q, q_low, g, g_low)
        d, d_low = times(d, d_low, d, d_low)
        return finish1(x, quotient(n, n_low, d, d_low) * power)

    @p.function
    def second(x, power, q, q_low, a, a_low, b, b_low):
        e, e_low, d, d_low = exponential(power, q, q_low)
        g, g_low = plus(a, a_low, b, b_low)
        g, g_low = times(e, e_low, g, g_low)
        h, h_low = plus(a, a_low, -b, -b_low)
        g, g_low = plus(h, h_low, g, g_low)
        n, n_low = scaled(q, q_low, g, g_low)
        square, square_low = times(d, d_low, d, d_low)
        d, d_low = times(square, square_low, d, d_low)
        return finish2(x, quotient(n, n_low, d, d_low) * power)

    out: dict[str, Any] = {}
    for form in ("tanh", "quick"):
        out |= _form(p, k, form, SimpleNamespace(**locals()), dtype)
    return out


def _form(p: Any, k: SimpleNamespace, form: str, f: SimpleNamespace, dtype: str) -> dict[str, Any]:
    magnitude, t_max = p.magnitude, k.t_max[form]
    tanh_slope = f.tanh_slope if dtype == "f32" else f.tanh_slope_carefully
    slope_of = tanh_slope if form == "tanh" else f.quick_slope
    reduced = f.reduced if dtype == "f32" else f.reduced_carefully
    value, first, second, times, plus = f.value, f.first, f.second, f.times, f.plus

    @p.function
    def clamped(x):
        t = magnitude(x)
        return t_max if t > t_max else t  # nan stays

    @p.function
    def gelu(x):
        t = clamped(x)
        b, b_low = slope_of(t)
        power, q, q_low = reduced(t, b, b_low)
        return value(x, t, power, q, q_low)

    stem = f"gelu_{form}"
    if dtype == "f32":
        return {stem: gelu}
    zero, two, three = f.zero, f.two, f.three
    slope_hi, slope_lo = k.tanh_slope_hi, k.tanh_slope_lo
    minus_two_slope_hi, minus_two_slope_lo = -two * slope_hi, -two * slope_lo
    quick_hi, quick_lo = k.quick_hi, k.quick_lo
    two_quick_hi, two_quick_lo = two * quick_hi, two * quick_lo

    @p.function
    def tanh_derivative(b, b_low):
        """y' = 3*(y/t) - 2*slope."""
        c, c_low = times(b, b_low, three, zero)
        return plus(minus_two_slope_hi, minus_two_slope_lo, c, c_low)

    @p.function
    def quick_derivative(b, b_low):
        return b, b_low

    @p.function
    def tanh_bend(d, d_low):
        """2y' + t*y'' = 4y' - 2*slope."""
        return plus(minus_two_slope_hi, minus_two_slope_lo, d * two * two, d_low * two * two)

    @p.function
    def quick_bend(d, d_low):
        return two_quick_hi, two_quick_lo

    derivative = tanh_derivative if form == "tanh" else quick_derivative
    bend = tanh_bend if form == "tanh" else quick_bend

    @p.function
    def gelu_grad(x):
        t = clamped(x)
        b, b_low = slope_of(t)
        power, q, q_low = reduced(t, b, b_low)
        d, d_low = derivative(b, b_low)
        z, z_low = times(d, d_low, t, zero)
        return first(x, power, q, q_low, z, z_low)

    @p.function
    def gelu_grad2(x):
        t = clamped(x)
        b, b_low = slope_of(t)
        power, q, q_low = reduced(t, b, b_low)
        d, d_low = derivative(b, b_low)
        z, z_low = times(d, d_low, t, zero)
        square, square_low = times(z, z_low, d, d_low)
        a, a_low = bend(d, d_low)
        return second(x, power, q, q_low, a, a_low, square, square_low)

    return {stem: gelu, f"{stem}_grad": gelu_grad, f"{stem}_grad2": gelu_grad2}


def make_wide(p: Any, k: SimpleNamespace, w: SimpleNamespace) -> dict[str, Any]:
    """float32's derivatives, in double: next to their roots 1 - z + e cancels, and the double-word arithmetic that
    float64 needs for that would cost as much."""
    return {name: f for form in ("tanh", "quick") for name, f in _wide_form(p, k, w, form).items()}


def _wide_form(p: Any, k: SimpleNamespace, w: SimpleNamespace, form: str) -> dict[str, Any]:
    fma, div, polynomial, magnitude, exponent = p.fma, p.div, p.polynomial, p.magnitude, p.low_bits_as_exponent
    widen, narrow = p.widen, p.narrow
    tanh = form == "tanh"
    real = w.real
    t_max, zero32 = k.t_max[form], k.real(0)
    zero, one, two, three, four = real(0), real(1), real(2), real(3), real(4)
    unshift, magic, exp = w.unshift, w.magic, w.exp
    minus_inv, minus_ln2 = -w.inv_ln2, -real(w.ln2_hi + w.ln2_lo)
    slope = w.tanh_slope_hi if tanh else w.quick_hi
    cubic = w.tanh_cubic_hi if tanh else zero
    three_cubic = three * cubic

    @p.function
    def start(x):
        """t, y', e, 1/(1 + e)."""
        t = magnitude(x)
        t = widen(t_max if t > t_max else t)  # nan stays
        s = t * t
        y = t * fma(cubic, s, slope)
        shifted = fma(y, minus_inv, magic)
        n = shifted - magic  # -n
        r = fma(n, minus_ln2, -y)
        power = exponent(shifted) * unshift
        e = fma(power, fma(r * r, polynomial(r, exp), r), power)
        return t, fma(three_cubic, s, slope), e, div(one, one + e)

    @p.function
    def gelu_grad(x):
        t, d, e, q = start(x)
        f = (e * q) * (q * (fma(-t, d, one) + e))
        return narrow(f if x < zero32 else one - f)

    @p.function
    def gelu_grad2(x):
        t, d, e, q = start(x)
        b = (t * d) * d
        a = fma(four, d, -two * slope) if tanh else two * slope
        return narrow((e * q) * (q * q) * fma(e, a + b, a - b))

    return {f"gelu_{form}_grad": gelu_grad, f"gelu_{form}_grad2": gelu_grad2}
