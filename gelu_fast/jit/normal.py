"""The exact form: y = t^2/2, P by one polynomial. Part of formulas.py, which says what the names mean."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from .finish import make_finish


def make_normal(p: Any, k: SimpleNamespace, dtype: str) -> dict[str, Any]:
    fma, div, polynomial, magnitude, exponent = p.fma, p.div, p.polynomial, p.magnitude, p.low_bits_as_exponent
    real = k.real
    finish0, finish1, finish2 = make_finish(p, k)
    zero, one, two = real(0), real(1), real(2)
    t_max, magic = k.t_max["none"], k.magic
    minus_inv, minus_hi, minus_lo, exp = -k.inv_ln4, -k.ln4_hi, -k.ln4_lo, k.exp_half

    @p.function
    def clamped(x):
        t = magnitude(x)
        return t_max if t > t_max else t  # nan stays

    @p.function
    def exponential(t):
        """2^(shift - n), q, q_low with exp(-t^2/2) = 2^-n * (1 + q/2). P is halved instead, which saves a product."""
        s = t * t
        shifted = fma(s, minus_inv, magic)
        n = shifted - magic  # -n
        head = fma(n, minus_hi, -s)  # exact: hi has few bits
        low = fma(n, minus_lo, fma(-t, t, s))
        r = head + low
        rest = fma(r * r, polynomial(r, exp), (head - r) + low)
        q = r + rest
        return exponent(shifted), q, (r - q) + rest

    @p.function
    def product(half_p, half_low, power, q, q_low):
        return ((half_p + half_p) + fma(half_p, q, fma(half_p, q_low, half_low + half_low))) * power

    @p.function
    def product_carefully(half_p, half_low, power, q, q_low):
        low = fma(half_p, q_low, fma(half_low, q, half_low + half_low))
        return ((half_p + half_p) + fma(half_p, q, low)) * power

    @p.function
    def inverse(t, c):
        """w near 1/(t + c), and 1 - w*(t + c)."""
        d = t + c
        back = d - t
        d_low = (t - (d - back)) + (c - back)
        w = div(one, d)
        return w, fma(-w, d_low, fma(-w, d, one))

    a, four, quarter = getattr(k.value, "a", zero), real(4), real(0.25)
    centre, value0, value1_up = k.value.centre, k.value.coefs[0], k.value.coefs[1:]

    def gelu_f32(x):
        t = clamped(x)
        power, q, q_low = exponential(t)
        d = fma(t, a, four)
        v = div(t, d)
        u, square = v - centre, v * v
        h = fma(polynomial(u, value1_up), u, value0)
        half = fma(square, h, v)
        low = fma(square, h, v - half)
        miss = fma(-v, fma(t, a, four - d), fma(-v, d, t))  # t - v*(a*t + 4), which the rounding of d and v left over
        weight = quarter - v  # dP/dv/d, or near enough: beyond v = 1/4 it matters no more
        low = fma(miss, zero if weight < zero else weight, low)
        return finish0(x, product(half, low, power, q, q_low))

    c, eight = getattr(k.value, "c", zero), real(8)
    value1, value2 = value1_up[0], value1_up[1:]

    def gelu_f64(x):
        t = clamped(x)
        power, q, q_low = exponential(t)
        w, miss = inverse(t, c)
        u = w - centre
        rest = polynomial(u, value2)
        h = fma(rest, u, value1)
        h_low = fma(rest, u, value1 - h)
        m = fma(h, u, value0)
        m_low = fma(h_low, u, fma(h, u, value0 - m))
        v = t * w
        half = v * m
        low = fma(fma(t, w, -v), m, fma(v, m_low, fma(v, m, -half)))
        low = fma(half * miss, fma(w, eight, one), low)  # P0 goes with w^(1 + 8w), nearly
        return finish0(x, product_carefully(half, low, power, q, q_low))

    slope_c, slope_centre = k.slope.c, k.slope.centre
    slope0, slope1, slope2 = k.slope.coefs[0], k.slope.coefs[1], k.slope.coefs[2:]
    root_hi, root_lo = k.root_hi, k.root_lo

    slope_weight = real(16) if dtype == "f64" else real(4)  # d(log slope)/d(log w)/w^2, nearly

    @p.function
    def gelu_grad(x):
        t = clamped(x)
        power, q, q_low = exponential(t)
        w, miss = inverse(t, slope_c)
        u = w - slope_centre
        rest = polynomial(u, slope2)
        h = fma(rest, u, slope1)
        s = fma(h, u, slope0)
        s_low = fma(fma(rest, u, slope1 - h), u, fma(h, u, slope0 - s))
        far = t - root_hi
        near = far - root_lo
        near_low = (far - near) - root_lo
        half = near * s
        low = fma(near_low, s, fma(near, s_low, fma(near, s, -half)))
        low = fma(half * miss, w * w * slope_weight, low)
        return finish1(x, product_carefully(half, low, power, q, q_low))

    density_hi, density_lo = k.density_hi, k.density_lo

    @p.function
    def gelu_grad2(x):
        t = clamped(x)
        power, q, q_low = exponential(t)
        s = t * t
        s_low = fma(t, t, -s)
        far = two - s
        near = far - s_low
        near_low = ((far - near) - s_low) + ((two - far) - s)
        half = near * density_hi
        low = fma(near_low, density_hi, fma(near, density_lo, fma(near, density_hi, -half)))
        return finish2(x, product_carefully(half, low, power, q, q_low))

    gelu = p.function(gelu_f32 if dtype == "f32" else gelu_f64)
    return {"gelu": gelu, "gelu_grad": gelu_grad, "gelu_grad2": gelu_grad2}
