/* The formulas: every GELU form and derivative on one vector. No arrays, no threads, no ISA.
 *
 * All of them reduce to one F(t), t = |x| (generate_coefficients.py has the definitions):
 *
 *     order 0   f(x)   = max(x, 0) - F        1 + erf or 1 + tanh, which cancel for x < 0, is never formed
 *     order 1   f'(x)  = x < 0 ? F : 1 - F
 *     order 2   f''(x) = F
 *
 * float:  F is a polynomial in t - centre, its coefficients fetched per lane from a table of 8 segments (32 on AVX-512).
 *         Half of them hold F itself; beyond z = 8 (t about 3, or 3.5) the table holds P = F*exp(y), and F = P*E,
 *         E = exp(-y). `near` takes vectors whose lanes are all in the first half, `any` takes all; a lane's bits are the
 *         same in both, because `any` leaves such a lane's polynomial alone. A result depends on its x alone.
 * double: the same with some hundred segments, fetched by rows; on AVX-512 `near` has 16 of its own, in registers.
 *
 * The last step of E, a power of two, is scaled so that a subnormal result is rounded once. Bounds: gelu_fast/bounds.py.
 *
 * Tried and left out: Estrin's scheme for the polynomials (no faster on Sapphire Rapids, 3 to 8 % slower for float), pairs
 * of terms in u*u (3 to 5 % slower on Zen 4), the exponential in pairs (no gain on Zen 4): what counts is the number of
 * operations; one taken out of `any` saves 1.2 to 1.5 of its 32 cycles for 16 lanes.
 */
#ifndef GF_GELU_MATH_H
#define GF_GELU_MATH_H

#include "coefficients.h"

#define GF_INLINE static inline __attribute__((always_inline))

enum { GF_none, GF_tanh, GF_quick };

/* -- float -------------------------------------------------------------------------------------------------------- */

/* exp(-y(t)) * p, p rounded already, where z >= 8; p elsewhere. In w = 2y, which spares the exact form a product:
 * -w = n*ln4 + r, n a multiple of 1/8 below, 0 <= r < ln4/8. r is rounded once, as t*b and n*ln4_hi are exact inside the
 * fused operations; and being small it costs nothing. 2^n is a table of eighths, whose numbers happen to be nearly exact
 * (EXP_SCALE, taken out of p, was chosen for that), times a power of two. */
GF_INLINE vf vf_times_exp(int form, vf p, vf t, vf z)
{
    vf b, more, w, m, n, r, q, power;
    if (form == GF_none) {
        b = t;
    } else if (form == GF_quick) {
        b = vf_set(GF_F32_QUICK_HI);
        more = vf_set(GF_F32_QUICK_LO);
    } else { /* slope + cubic*t*t as b + more; b - slope is exact */
        vf cubic = vf_set(GF_F32_TANH_CUBIC_HI), slope = vf_set(GF_F32_TANH_SLOPE_HI), s = vf_mul(t, t);
        b = vf_fma(cubic, s, slope);
        more = vf_fma(vf_set(GF_F32_TANH_CUBIC_LO), s, vf_set(GF_F32_TANH_SLOPE_LO));
        more = vf_fma(cubic, vf_fms(t, t, s), more);
        more = vf_add(more, vf_fms(cubic, s, vf_sub(b, slope)));
    }
    w = vf_fma(t, b, vf_set(GF_F32_LN4_HI / 16)); /* so that rounding to nearest rounds -w down */
    m = vf_fnma(w, vf_set(GF_F32_INV_LN4), vf_set(VF_EIGHTHS));
    n = vf_sub(m, vf_set(VF_EIGHTHS));
    r = vf_fnma(t, b, vf_mul(n, vf_set(-GF_F32_LN4_HI)));
    r = vf_fnma(n, vf_set(GF_F32_LN4_LO), r);
    if (form != GF_none) r = vf_fnma(t, more, r);
    q = vf_set(GF_F32_EXP[GF_F32_EXP_DEGREE]);
#pragma GCC unroll 8
    for (int k = GF_F32_EXP_DEGREE - 1; k >= 1; k--) q = vf_fma(q, r, vf_set(GF_F32_EXP[k]));
    power = vf_exp2_eighths(GF_F32_EXP_TABLE, m);
    q = vf_mul(vf_mul(q, r), power); /* power * (exp(r/2) - 1): p * (power + q) is rounded once, or nearly */
    return vf_scaled_ge8(z, p, vf_fma(p, power, vf_mul(p, q)), n);
}

/* c0 + u*(c1 + u*(...)), u = t - centre, with the coefficients of each lane's segment. careful: what rounding the last
 * bracket but one left over is added in. */
#define GF_DEFINE_POLY(name, lookup)                                                                                \
    GF_INLINE vf name(const float (*columns)[VF_TABLE], int degree, int careful, vf t, vfi i)                       \
    {                                                                                                               \
        vf u = vf_sub(t, lookup(columns[0], i)), q = lookup(columns[degree + 1], i), c1, last;                      \
        _Pragma("GCC unroll 16") for (int k = degree; k >= 3; k--) q = vf_fma(q, u, lookup(columns[k], i));         \
        c1 = lookup(columns[2], i);                                                                                 \
        last = vf_fma(q, u, c1);                                                                                    \
        c1 = careful ? vf_fma(vf_fms(q, u, vf_sub(last, c1)), u, lookup(columns[1], i)) : lookup(columns[1], i);    \
        return vf_fma(last, u, c1);                                                                                 \
    }
GF_DEFINE_POLY(vf_poly_near, vf_lookup_near)
GF_DEFINE_POLY(vf_poly_any, vf_lookup_any)

/* -- double ------------------------------------------------------------------------------------------------------- */

/* y(t) = n*ln2 + r + low, |r| <= ln2/2 and a little; low is what rounding r left over. Needs t <= t_max. */
GF_INLINE void vd_reduce(int form, vd t, vd *n, vd *r, vd *low)
{
    vd b, more, y, head;
    if (form == GF_none) { /* t*t/2 */
        b = vd_mul(t, vd_set(0.5));
    } else if (form == GF_quick) {
        b = vd_set(GF_F64_QUICK_HI);
        more = vd_set(GF_F64_QUICK_LO);
    } else { /* t*(slope + cubic*t*t), the bracket as b + more */
        vd slope = vd_set(GF_F64_TANH_SLOPE_HI), cubic = vd_set(GF_F64_TANH_CUBIC_HI);
        vd s = vd_mul(t, t), q = vd_mul(cubic, s), back;
        vd ql = vd_fma(cubic, vd_fms(t, t, s), vd_fms(cubic, s, q));
        b = vd_add(slope, q), back = vd_sub(b, slope);
        more = vd_add(vd_sub(slope, vd_sub(b, back)), vd_sub(q, back));
        ql = vd_fma(vd_set(GF_F64_TANH_CUBIC_LO), s, ql);
        more = vd_add(more, vd_add(ql, vd_set(GF_F64_TANH_SLOPE_LO)));
    }
    y = vd_mul(t, b);
    *n = vd_round(vd_mul(y, vd_set(GF_F64_INV_LN2)));
    head = vd_fnma(*n, vd_set(GF_F64_LN2_HI), y); /* y - n*ln2_hi, exact */
    *low = vd_fnma(*n, vd_set(GF_F64_LN2_LO), vd_fms(t, b, y));
    if (form != GF_none) *low = vd_fma(t, more, *low);
    *r = vd_add(head, *low);
    *low = vd_add(vd_sub(head, *r), *low);
}

/* (p + low) * exp(-y(t)); low is what rounding p left over */
GF_INLINE vd vd_times_exp(int form, vd p, vd low, vd t)
{
    vd n, r, rest, q = vd_set(GF_F64_EXP[GF_F64_EXP_DEGREE]);
    vd_reduce(form, t, &n, &r, &rest);
#pragma GCC unroll 16
    for (int k = GF_F64_EXP_DEGREE - 1; k >= 2; k--) q = vd_fma(q, r, vd_set(GF_F64_EXP[k]));
    q = vd_fma(vd_mul(r, r), q, r); /* 1 - exp(-r) */
    low = vd_fnma(p, rest, low);
    p = vd_less(p, q, vd_fnma(low, q, low));
    return vd_mul(vd_mul(p, vd_exp2i(vd_sub(vd_set(512), n))), vd_set(0x1p-512));
}

/* careful (see above) throughout: it costs three operations of sixty. fms is exact in plain C too. */
GF_INLINE vd vd_last_terms(vd c0, vd c1, vd u, vd q, vd *low)
{
    vd last = vd_fma(q, u, c1), p;
    c0 = vd_fma(vd_fms(q, u, vd_sub(last, c1)), u, c0);
    p = vd_fma(last, u, c0);
    if (low) *low = vd_fms(last, u, vd_sub(p, c0)); /* right where c0 - p is exact: not next to a root */
    return p;
}

GF_INLINE vd vd_poly_rows(const double (*rows)[12], vd t, vdi i, vd *low)
{
    vd c[12], u, q;
    vd_rows(rows, i, c);
    u = vd_sub(t, c[0]);
    q = c[11];
#pragma GCC unroll 10
    for (int k = 10; k >= 3; k--) q = vd_fma(q, u, c[k]);
    return vd_last_terms(c[1], c[2], u, q, low);
}

#ifdef VD_COLUMNS /* near has a table of its own, by column */
#define vd_near(rows, columns, degree, scale, t, z) ((void)z, vd_poly_columns(columns, degree, scale, t))
#define vd_near_lanes(columns, degree, scale, t, p) vd_poly_columns(columns, degree, scale, t)
GF_INLINE vd vd_poly_columns(const double (*columns)[16], int degree, double scale, vd t)
{
    vdi i = vd_column_index(vd_fma(t, vd_set(scale), vd_set(4)));
    vd u = vd_sub(t, vd_lookup16(columns[0], i)), q = vd_lookup16(columns[degree + 1], i);
#pragma GCC unroll 12
    for (int k = degree; k >= 3; k--) q = vd_fma(q, u, vd_lookup16(columns[k], i));
    return vd_last_terms(vd_lookup16(columns[1], i), vd_lookup16(columns[2], i), u, q, 0);
}
#else
#define vd_near(rows, columns, degree, scale, t, z) vd_poly_rows(rows, t, vd_index(z, GF_F64_FIRST), 0)
#define vd_near_lanes(columns, degree, scale, t, p) (p)
#endif

/* -- both --------------------------------------------------------------------------------------------------------- */

#define GF_DEFINE_COMBINE(V)                                                                                        \
    GF_INLINE V V##_combine(int order, V x, V f)                                                                    \
    {                                                                                                               \
        if (order == 0) /* x < 0 gives -0.0 - F, so that what underflows is -0.0 */                                 \
            return V##_sub(V##_max(V##_set(-0.0f), x), f);                                                          \
        return order == 1 ? V##_by_sign(x, f, V##_sub(V##_set(1), f)) : f;                                          \
    }
GF_DEFINE_COMBINE(vf)
GF_DEFINE_COMBINE(vd)

/* Each function's pair of vector functions, vf_NAME_near and vf_NAME_any, and their double twins. z comes from NAME_z
 * and says which of the pair may be used. */
#define GF_DEFINE(form, order) GF_DEFINE_DOUBLE(form, order) GF_DEFINE_FOR(form, order, VF_LAYOUT)
#define GF_DEFINE_FOR(form, order, layout) GF_DEFINE_NAMED(form, order, layout) /* layout is a macro: expanded here */
#define GF_DEFINE_NAMED(form, order, layout) GF_DEFINE_FLOAT(form, order, form##order, form##order##_##layout)
#define GF_DEFINE_FLOAT(form, order, name, table)                                                                   \
    GF_INLINE vf vf_##name##_z(vf x) { return vf_fma(vf_abs(x), vf_set(GF_SCALE_##table), vf_set(GF_OFFSET_##table)); }  \
    GF_INLINE vf vf_##name##_near(vf x, vf z)                                                                            \
    {                                                                                                               \
        vf p = vf_poly_near(gf_##table, GF_DEGREE_##table, GF_CAREFUL_##table, vf_abs(x), vf_index(z));             \
        return vf_combine(order, x, p);                                                                             \
    }                                                                                                               \
    GF_INLINE vf vf_##name##_any(vf x, vf z)                                                                             \
    {                                                                                                               \
        vf t = vf_min(vf_set(GF_T_MAX_##table), vf_abs(x));                                                         \
        vfi i = vf_index(vf_min(vf_set(0x1.fffffep3f), z));                                                         \
        vf p = vf_poly_any(gf_##table, GF_DEGREE_##table, GF_CAREFUL_##table, t, i);                                \
        return vf_combine(order, x, vf_times_exp(GF_##form, p, t, z));                                              \
    }
#define GF_DEFINE_DOUBLE(form, order) GF_DEFINE_DOUBLE_(form, order, form##order, form##order##_f64, form##order##_f64x16)
#define GF_DEFINE_DOUBLE_(form, order, name, table, small)                                                          \
    GF_INLINE vd vd_##name##_z(vd x) { return vd_add(vd_abs(x), vd_set(GF_OFFSET_##table)); }                           \
    GF_INLINE vd vd_##name##_near(vd x, vd z)                                                                        \
    {                                                                                                               \
        return vd_combine(order, x, vd_near(gf_##table, gf_##small, GF_DEGREE_##small, GF_SCALE_##small, vd_abs(x), z));               \
    }                                                                                                               \
    GF_INLINE vd vd_##name##_any(vd x, vd z)                                                                         \
    {                                                                                                               \
        vd t = vd_min(vd_set(GF_T_MAX_##table), vd_abs(x)), low;                                                    \
        vd p = vd_poly_rows(gf_##table, t, vd_clamp(vd_index(z, GF_F64_FIRST), GF_SEGMENTS_##table), &low);         \
        vd f = vd_times_exp(GF_##form, p, low, t);                                                                  \
        return vd_combine(order, x, vd_where_ge8(z, f, vd_near_lanes(gf_##small, GF_DEGREE_##small, GF_SCALE_##small, t, p)));         \
    }

GF_DEFINE(none, 0) GF_DEFINE(none, 1) GF_DEFINE(none, 2)
GF_DEFINE(tanh, 0) GF_DEFINE(tanh, 1) GF_DEFINE(tanh, 2)
GF_DEFINE(quick, 0) GF_DEFINE(quick, 1) GF_DEFINE(quick, 2)

#endif
