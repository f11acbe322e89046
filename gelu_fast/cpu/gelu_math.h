/* The formulas: every GELU form and derivative on one vector. No arrays, no threads, no ISA.
 *
 * All of them reduce to one F(t), t = |x| (generate_coefficients.py has the definitions):
 *
 *     order 0   f(x)   = max(x, 0) - F        1 + erf or 1 + tanh, which cancel for x < 0, is never formed
 *     order 1   f'(x)  = x < 0 ? F : 1 - F
 *     order 2   f''(x) = F
 *
 * float:  F is a polynomial in t - centre, its coefficients fetched per lane from a table of eight segments. The first
 *         four hold F itself; beyond z = 8 (about t = 3) the table holds P = F*exp(y), and F = P*E, E = exp(-y).
 *         `near` takes vectors whose lanes are all in the first four, `any` takes all; a lane's bits are the same in
 *         both, because there E is exactly 1. A result depends on its x alone.
 * double: the same, with some hundred segments and both cases in one function.
 *
 * E = 2^-n * exp(-r), y = n*ln2 + r, with r from exact products; scaled in two steps, so that a subnormal result is
 * rounded once. Bounds: gelu_fast/bounds.py.
 *
 * Tried and left out: Estrin's scheme for the polynomials (no faster on Sapphire Rapids, 3 to 8 % slower for float:
 * the limit is issue width, not latency).
 */
#ifndef GF_GELU_MATH_H
#define GF_GELU_MATH_H

#include "coefficients.h"

#define GF_INLINE static inline __attribute__((always_inline))

enum { GF_none, GF_tanh, GF_quick };

/* y(t) = n*ln2 + r + low, |r| <= ln2/2 and a little; low is what rounding r left over. Needs t <= t_max.
 * V is vf or vd, F its constants' prefix: the same text gives float and double. */
#define GF_DEFINE_EXP(V, F)                                                                                         \
    GF_INLINE void V##_reduce(int form, V t, V *n, V *r, V *low)                                                    \
    {                                                                                                               \
        V a = t, b, more, y, head;                                                                                  \
        if (form == GF_none) { /* t*t/2 */                                                                          \
            b = V##_mul(t, V##_set((V##_scalar)0.5));                                                               \
        } else if (form == GF_quick) {                                                                              \
            b = V##_set(GF_##F##_QUICK_SLOPE_HI);                                                                   \
            more = V##_set(GF_##F##_QUICK_SLOPE_LO);                                                                \
        } else { /* t*(slope + cubic*t*t), the bracket as b + more */                                               \
            V slope = V##_set(GF_##F##_TANH_SLOPE_HI), cubic = V##_set(GF_##F##_TANH_CUBIC_HI);                     \
            V s = V##_mul(t, t), q = V##_mul(cubic, s), back;                                                       \
            V ql = V##_fma(cubic, V##_fms(t, t, s), V##_fms(cubic, s, q));                                          \
            b = V##_add(slope, q), back = V##_sub(b, slope);                                                        \
            more = V##_add(V##_sub(slope, V##_sub(b, back)), V##_sub(q, back));                                     \
            ql = V##_fma(V##_set(GF_##F##_TANH_CUBIC_LO), s, ql);                                                   \
            more = V##_add(more, V##_add(ql, V##_set(GF_##F##_TANH_SLOPE_LO)));                                     \
        }                                                                                                           \
        y = V##_mul(a, b);                                                                                          \
        *n = V##_round(V##_mul(y, V##_set(GF_##F##_INV_LN2)));                                                      \
        head = V##_fnma(*n, V##_set(GF_##F##_LN2_HI), y); /* y - n*ln2_hi, exact */                                 \
        *low = V##_fnma(*n, V##_set(GF_##F##_LN2_LO), V##_fms(a, b, y));                                            \
        if (form != GF_none) *low = V##_fma(t, more, *low);                                                         \
        *r = V##_add(head, *low);                                                                                   \
        *low = V##_add(V##_sub(head, *r), *low);                                                                    \
    }                                                                                                               \
    /* (p + low) * exp(-y(t)); low is what rounding p left over */                                                  \
    GF_INLINE V V##_times_exp(int form, V p, V low, V t, double up, double down)                                    \
    {                                                                                                               \
        V n, r, rest, q = V##_set(GF_##F##_EXP[GF_##F##_EXP_DEGREE]);                                               \
        V##_reduce(form, t, &n, &r, &rest);                                                                         \
        _Pragma("GCC unroll 16") for (int k = GF_##F##_EXP_DEGREE - 1; k >= 2; k--)                                 \
            q = V##_fma(q, r, V##_set(GF_##F##_EXP[k]));                                                            \
        q = V##_fma(V##_mul(r, r), q, r); /* 1 - exp(-r) */                                                         \
        low = V##_fnma(p, rest, low);                                                                               \
        p = V##_less(p, q, V##_fnma(low, q, low));                                                                  \
        return V##_mul(V##_mul(p, V##_exp2i(V##_sub(V##_set((V##_scalar)up), n))), V##_set((V##_scalar)down));      \
    }                                                                                                               \
    /* c0 + u*(c1 + u*q2). careful: what rounding the bracket left over is added in. fms is exact in plain C too. */ \
    GF_INLINE V V##_last_terms(V c0, V c1, V u, V q2, int careful, V *low)                                          \
    {                                                                                                               \
        V q = V##_fma(q2, u, c1), p;                                                                                \
        if (careful) c0 = V##_fma(V##_fms(q2, u, V##_sub(q, c1)), u, c0);                                           \
        p = V##_fma(q, u, c0);                                                                                      \
        if (low) *low = V##_fms(q, u, V##_sub(p, c0)); /* right where c0 - p is exact: not next to a root */        \
        return p;                                                                                                   \
    }                                                                                                               \
    GF_INLINE V V##_combine(int order, V x, V f)                                                                    \
    {                                                                                                               \
        if (order == 0) /* x < 0 gives -0.0 - F, so that what underflows is -0.0 */                                 \
            return V##_sub(V##_max(V##_set((V##_scalar)-0.0), x), f);                                               \
        return order == 1 ? V##_by_sign(x, f, V##_sub(V##_set(1), f)) : f;                                          \
    }

typedef float vf_scalar;
typedef double vd_scalar;
GF_DEFINE_EXP(vf, F32)
GF_DEFINE_EXP(vd, F64)

GF_INLINE vf vf_poly8(const float (*columns)[8], int degree, int careful, vf t, vfi i, vf *low)
{
    vf u = vf_sub(t, vf_lookup8(columns[0], i)), q = vf_lookup8(columns[degree + 1], i);
#pragma GCC unroll 16
    for (int k = degree; k >= 3; k--) q = vf_fma(q, u, vf_lookup8(columns[k], i));
    return vf_last_terms(vf_lookup8(columns[1], i), vf_lookup8(columns[2], i), u, q, careful, low);
}

GF_INLINE vf vf_poly4(const float (*columns)[8], int degree, int careful, vf t, vfi i)
{
    vf u = vf_sub(t, vf_lookup4(columns[0], i)), q = vf_lookup4(columns[degree + 1], i);
#pragma GCC unroll 16
    for (int k = degree; k >= 3; k--) q = vf_fma(q, u, vf_lookup4(columns[k], i));
    return vf_last_terms(vf_lookup4(columns[1], i), vf_lookup4(columns[2], i), u, q, careful, 0);
}

/* The same for double, whose rows are fetched whole. careful throughout: it costs three operations of sixty. */
GF_INLINE vd vd_poly(const double (*rows)[12], vd t, vdi i, vd *low)
{
    vd c[12], u, q;
    vd_rows(rows, i, c);
    u = vd_sub(t, c[0]);
    q = c[11];
#pragma GCC unroll 10
    for (int k = 10; k >= 3; k--) q = vd_fma(q, u, c[k]);
    return vd_last_terms(c[1], c[2], u, q, 1, low);
}

/* Each function's pair of float vector functions, NAME_near and NAME_any, and its double one, NAME_f64. z comes from
 * NAME_z and says which of the pair may be used. */
#define GF_DEFINE(form, order)                                                                                      \
    GF_INLINE vf form##order##_z(vf x)                                                                              \
    {                                                                                                               \
        return vf_fma(vf_abs(x), vf_set(GF_SCALE_##form##order##_f32), vf_set(GF_OFFSET_##form##order##_f32));      \
    }                                                                                                               \
    GF_INLINE vf form##order##_near(vf x, vf z)                                                                     \
    {                                                                                                               \
        return vf_combine(order, x, vf_poly4(gf_##form##order##_f32, GF_DEGREE_##form##order##_f32,                 \
                                             GF_CAREFUL_##form##order##_f32, vf_abs(x), vf_index(z)));              \
    }                                                                                                               \
    GF_INLINE vf form##order##_any(vf x, vf z)                                                                      \
    {                                                                                                               \
        vf t = vf_min(vf_set(GF_T_MAX_##form##order##_f32), vf_abs(x));                                             \
        vfi i = vf_index(vf_min(vf_set(0x1.fffffep3f), z));                                                         \
        vf low, p = vf_poly8(gf_##form##order##_f32, GF_DEGREE_##form##order##_f32,                                 \
                             GF_CAREFUL_##form##order##_f32, t, i, &low);                                           \
        p = vf_times_exp(GF_##form, p, vf_where_ge(z, 8, low), vf_where_ge(z, 8, t), 64, 0x1p-64);                  \
        return vf_combine(order, x, p);                                                                             \
    }                                                                                                               \
    GF_INLINE vd form##order##_f64(vd x)                                                                            \
    {                                                                                                               \
        vd t = vd_abs(x), z = vd_add(t, vd_set(GF_OFFSET_##form##order##_f64)), low, p;                             \
        vdi i = vd_index(z, GF_F64_FIRST);                                                                          \
        if (__builtin_expect(!vd_any_ge8(z), 1))                                                                    \
            return vd_combine(order, x, vd_poly(gf_##form##order##_f64, t, i, 0));                                  \
        t = vd_min(vd_set(GF_T_MAX_##form##order##_f64), t);                                                        \
        p = vd_poly(gf_##form##order##_f64, t, vd_clamp(i, GF_SEGMENTS_##form##order##_f64), &low);                 \
        p = vd_times_exp(GF_##form, p, vd_where_ge(z, 8, low), vd_where_ge(z, 8, t), 512, 0x1p-512);                \
        return vd_combine(order, x, p);                                                                             \
    }

GF_DEFINE(none, 0) GF_DEFINE(none, 1) GF_DEFINE(none, 2)
GF_DEFINE(tanh, 0) GF_DEFINE(tanh, 1) GF_DEFINE(tanh, 2)
GF_DEFINE(quick, 0) GF_DEFINE(quick, 1) GF_DEFINE(quick, 2)

#endif
