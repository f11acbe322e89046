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
 * double: F = P*E throughout, some seventy segments.
 *
 * E = 2^-n * exp(-r), y = n*ln2 + r, with r from the exact products; scaled in two steps, so that a subnormal result
 * is rounded once. Bounds: gelu_fast/tolerances.py; what was tried and did not pay stands where it would have been.
 */
#ifndef GF_GELU_MATH_H
#define GF_GELU_MATH_H

#include "coefficients.h"

#define GF_INLINE static inline __attribute__((always_inline))

enum { GF_none, GF_tanh, GF_quick };

/* y(t) = n*ln2 + r with |r| <= ln2/2 and a little, r good to a few 2^-26 (2^-55) absolute. Needs t <= t_max.
 * F is f (float) or d (double): the same text gives both. */
#define GF_DEFINE_REDUCE(V, F)                                                                                      \
    GF_INLINE void V##_reduce(int form, V t, V *n, V *r)                                                            \
    {                                                                                                               \
        const V inv = V##_set(GF_##F##_INV_LN2), hi = V##_set(GF_##F##_LN2_HI), lo = V##_set(GF_##F##_LN2_LO);      \
        if (form == GF_none) { /* t*t/2 */                                                                          \
            V h = V##_mul(t, V##_set((0.5)));                                                                       \
            *n = V##_round(V##_mul(V##_mul(h, t), inv));                                                            \
            *r = V##_fnma(*n, lo, V##_fms(h, t, V##_mul(*n, hi)));                                                  \
        } else if (form == GF_quick) {                                                                              \
            V slope = V##_set(GF_##F##_QUICK_SLOPE_HI);                                                             \
            *n = V##_round(V##_mul(V##_mul(t, slope), inv));                                                        \
            *r = V##_fms(t, V##_set(GF_##F##_QUICK_SLOPE_LO), V##_mul(*n, lo)); /* the small terms together: */     \
            *r = V##_add(V##_fms(t, slope, V##_mul(*n, hi)), *r);               /* one rounding less in r */        \
        } else { /* t*(slope + cubic*t*t), the bracket as w + wl */                                                 \
            V slope = V##_set(GF_##F##_TANH_SLOPE_HI), cubic = V##_set(GF_##F##_TANH_CUBIC_HI);                     \
            V s = V##_mul(t, t), q = V##_mul(cubic, s);                                                             \
            V ql = V##_fma(cubic, V##_fms(t, t, s), V##_fms(cubic, s, q));                                          \
            V w = V##_add(slope, q), back = V##_sub(w, slope), wl;                                                  \
            wl = V##_add(V##_sub(slope, V##_sub(w, back)), V##_sub(q, back));                                       \
            ql = V##_fma(V##_set(GF_##F##_TANH_CUBIC_LO), s, ql);                                                   \
            wl = V##_add(wl, V##_add(ql, V##_set(GF_##F##_TANH_SLOPE_LO)));                                         \
            *n = V##_round(V##_mul(V##_mul(t, w), inv));                                                            \
            *r = V##_fms(t, wl, V##_mul(*n, lo));                                                                   \
            *r = V##_add(V##_fms(t, w, V##_mul(*n, hi)), *r);                                                       \
        }                                                                                                           \
    }                                                                                                               \
    /* (p + low) * exp(-y(t)); low is what rounding p left over */                                                  \
    GF_INLINE V V##_times_exp(int form, V p, V low, V t, int degree, const V##_scalar *coefs, double up, double down) \
    {                                                                                                               \
        V n, r, e;                                                                                                  \
        V##_reduce(form, t, &n, &r);                                                                                \
        e = V##_set(coefs[degree]);                                                                                 \
        _Pragma("GCC unroll 16") for (int k = degree - 1; k >= 1; k--) e = V##_fma(e, r, V##_set(coefs[k]));        \
        p = V##_add(p, V##_fma(p, V##_mul(e, r), low));                                                             \
        return V##_mul(V##_mul(p, V##_exp2i(V##_sub(V##_set((V##_scalar)up), n))), V##_set((V##_scalar)down));      \
    }                                                                                                               \
    GF_INLINE V V##_combine(int order, V x, V f)                                                                    \
    {                                                                                                               \
        if (order == 0) /* x < 0 gives -0.0 - F, so that what underflows is -0.0 */                                 \
            return V##_sub(V##_max(V##_set((V##_scalar)-0.0), x), f);                                               \
        return order == 1 ? V##_by_sign(x, f, V##_sub(V##_set(1), f)) : f;                                          \
    }

typedef float vf_scalar;
typedef double vd_scalar;
GF_DEFINE_REDUCE(vf, F32)
GF_DEFINE_REDUCE(vd, F64)

/* c0 + u*q rounded, and the rest of it; |c0| > |u*q| is not needed, as a fused product is exact either way. */
GF_INLINE vf vf_poly8(const float (*columns)[8], int degree, vf t, vfi i, vf *low)
{
    vf u = vf_sub(t, vf_lookup8(columns[0], i)), c0 = vf_lookup8(columns[1], i);
    vf q = vf_lookup8(columns[degree + 1], i), p;
#pragma GCC unroll 16
    for (int k = degree; k >= 2; k--) q = vf_fma(q, u, vf_lookup8(columns[k], i));
    p = vf_fma(q, u, c0);
    *low = vf_fma(q, u, vf_sub(c0, p));
    return p;
}

GF_INLINE vf vf_poly4(const float (*columns)[8], int degree, vf t, vfi i)
{
    vf u = vf_sub(t, vf_lookup4(columns[0], i)), p = vf_lookup4(columns[degree + 1], i);
#pragma GCC unroll 16
    for (int k = degree; k >= 1; k--) p = vf_fma(p, u, vf_lookup4(columns[k], i));
    return p;
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
        return vf_combine(order, x, vf_poly4(gf_##form##order##_f32, GF_DEGREE_##form##order##_f32, vf_abs(x),      \
                                             vf_index(z)));                                                         \
    }                                                                                                               \
    GF_INLINE vf form##order##_any(vf x, vf z)                                                                      \
    {                                                                                                               \
        vf t = vf_min(vf_set(GF_T_MAX_##form##order##_f32), vf_abs(x));                                             \
        vfi i = vf_index(vf_min(vf_set(0x1.fffffep3f), z));                                                         \
        vf low, p = vf_poly8(gf_##form##order##_f32, GF_DEGREE_##form##order##_f32, t, i, &low);                    \
        p = vf_times_exp(GF_##form, p, low, vf_where_ge(z, 8, t), GF_F32_EXP_DEGREE, gf_f32_exp, 64, 0x1p-64);           \
        return vf_combine(order, x, p);                                                                             \
    }                                                                                                               \
    GF_INLINE vd form##order##_f64(vd x)                                                                            \
    {                                                                                                               \
        vd t = vd_min(vd_set(GF_T_MAX_##form##order##_f64), vd_abs(x)), c[12], u, q, p;                             \
        vdi i = vd_index(vd_add(t, vd_set(GF_OFFSET_##form##order##_f64)), GF_F64_FIRST,                            \
                         GF_SEGMENTS_##form##order##_f64);                                                          \
        vd_rows(gf_##form##order##_f64, i, c);                                                                      \
        u = vd_sub(t, c[0]);                                                                                        \
        q = c[11];                                                                                                  \
        _Pragma("GCC unroll 10") for (int k = 10; k >= 2; k--) q = vd_fma(q, u, c[k]);                              \
        p = vd_fma(q, u, c[1]);                                                                                     \
        p = vd_times_exp(GF_##form, p, vd_fma(q, u, vd_sub(c[1], p)), t, GF_F64_EXP_DEGREE, gf_f64_exp, 512, 0x1p-512);                            \
        return vd_combine(order, x, p);                                                                             \
    }

GF_DEFINE(none, 0) GF_DEFINE(none, 1) GF_DEFINE(none, 2)
GF_DEFINE(tanh, 0) GF_DEFINE(tanh, 1) GF_DEFINE(tanh, 2)
GF_DEFINE(quick, 0) GF_DEFINE(quick, 1) GF_DEFINE(quick, 2)

#endif
