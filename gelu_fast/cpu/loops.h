/* Contiguous one-thread loops over gelu_math.h, for one ISA; included once by each isa_*.c.
 *
 * The remainder of a vector's length goes through the same functions in a padded buffer, so its bits come from the same
 * instructions. 16-bit types are computed in float and rounded once, straight from and to their arrays: going through
 * a float buffer in blocks took up to a fifth longer.
 */
#include <string.h>

#include "gelu_math.h"

#define GF_STEP (2 * VF_LANES)

/* Two float vectors at a time. One test for both decides whether the table's first half will do; on data like N(0, 1)
 * that branch goes the other way in a few percent of cases; against N(0, 0.3), where it never does, that costs 3 to 10 %
 * (up to 30 % for derivatives on AVX-512, whose pair is 32 numbers). */
#define GF_DEFINE_PAIR(name)                                                                                        \
    GF_INLINE void name##_pair(vf x0, vf x1, vf *y0, vf *y1)                                                        \
    {                                                                                                               \
        vf z0 = name##_z(x0), z1 = name##_z(x1);                                                                    \
        if (__builtin_expect(vf_any_ge8(z0, z1), 0)) {                                                              \
            *y0 = name##_any(x0, z0);                                                                               \
            *y1 = name##_any(x1, z1);                                                                               \
        } else {                                                                                                    \
            *y0 = name##_near(x0, z0);                                                                              \
            *y1 = name##_near(x1, z1);                                                                              \
        }                                                                                                           \
    }

/* Two vectors of consecutive elements; bfloat16's are in the vec_*.h. */
#define GF_DEFINE_LOAD2(type, T)                                                                                    \
    GF_INLINE void vf_load2_##type(const T *p, vf *a, vf *b)                                                        \
    {                                                                                                               \
        *a = vf_load_##type(p), *b = vf_load_##type(p + VF_LANES);                                                  \
    }                                                                                                               \
    GF_INLINE void vf_store2_##type(T *p, vf a, vf b) { vf_store_##type(p, a), vf_store_##type(p + VF_LANES, b); }
GF_DEFINE_LOAD2(f32, float)
GF_DEFINE_LOAD2(f16, uint16_t)

#define GF_DEFINE_LOOP(name, type, T)                                                                               \
    GF_INLINE void name##_step_##type(const T *x, T *y)                                                             \
    {                                                                                                               \
        vf x0, x1, y0, y1;                                                                                          \
        vf_load2_##type(x, &x0, &x1);                                                                               \
        name##_pair(x0, x1, &y0, &y1);                                                                              \
        vf_store2_##type(y, y0, y1);                                                                                \
    }                                                                                                               \
    static void name##_loop_##type(const void *px, void *py, intptr_t n)                                            \
    {                                                                                                               \
        const T *x = px;                                                                                            \
        T *y = py, rest[GF_STEP] = {0};                                                                             \
        for (; n >= GF_STEP; n -= GF_STEP, x += GF_STEP, y += GF_STEP) name##_step_##type(x, y);                    \
        if (n > 0) {                                                                                                \
            memcpy(rest, x, (size_t)n * sizeof *x);                                                                 \
            name##_step_##type(rest, rest);                                                                         \
            memcpy(y, rest, (size_t)n * sizeof *y);                                                                 \
        }                                                                                                           \
    }

#define GF_DEFINE_LOOP_F64(name)                                                                                    \
    static void name##_loop_f64(const void *px, void *py, intptr_t n)                                               \
    {                                                                                                               \
        const double *x = px;                                                                                       \
        double *y = py, rest[VD_LANES] = {0};                                                                       \
        for (; n >= VD_LANES; n -= VD_LANES, x += VD_LANES, y += VD_LANES) vd_store(y, name##_f64(vd_load(x)));     \
        if (n > 0) {                                                                                                \
            memcpy(rest, x, (size_t)n * sizeof *x);                                                                 \
            vd_store(rest, name##_f64(vd_load(rest)));                                                              \
            memcpy(y, rest, (size_t)n * sizeof *y);                                                                 \
        }                                                                                                           \
    }

/* dy * f'(x): f' is rounded to the dtype it is computed in, then the product. */
#define GF_DEFINE_PRODUCT(name, type, T)                                                                            \
    GF_INLINE void name##_product_step_##type(const T *d, const T *x, T *y)                                         \
    {                                                                                                               \
        vf x0, x1, d0, d1, y0, y1;                                                                                  \
        vf_load2_##type(x, &x0, &x1);                                                                               \
        vf_load2_##type(d, &d0, &d1);                                                                               \
        name##_pair(x0, x1, &y0, &y1);                                                                              \
        vf_store2_##type(y, vf_mul(d0, vf_rounded(y0)), vf_mul(d1, vf_rounded(y1)));                                \
    }                                                                                                               \
    static void name##_product_##type(const void *pd, const void *px, void *py, intptr_t n)                         \
    {                                                                                                               \
        const T *d = pd, *x = px;                                                                                   \
        T *y = py, rest[2][GF_STEP] = {{0}};                                                                        \
        for (; n >= GF_STEP; n -= GF_STEP, d += GF_STEP, x += GF_STEP, y += GF_STEP)                                \
            name##_product_step_##type(d, x, y);                                                                    \
        if (n > 0) {                                                                                                \
            memcpy(rest[0], d, (size_t)n * sizeof *d);                                                              \
            memcpy(rest[1], x, (size_t)n * sizeof *x);                                                              \
            name##_product_step_##type(rest[0], rest[1], rest[0]);                                                  \
            memcpy(y, rest[0], (size_t)n * sizeof *y);                                                              \
        }                                                                                                           \
    }

#define GF_DEFINE_PRODUCT_F64(name)                                                                                 \
    static void name##_product_f64(const void *pd, const void *px, void *py, intptr_t n)                            \
    {                                                                                                               \
        const double *d = pd, *x = px;                                                                              \
        double *y = py, rest[2][VD_LANES] = {{0}};                                                                  \
        for (; n >= VD_LANES; n -= VD_LANES, d += VD_LANES, x += VD_LANES, y += VD_LANES)                           \
            vd_store(y, vd_mul(vd_load(d), name##_f64(vd_load(x))));                                                \
        if (n > 0) {                                                                                                \
            memcpy(rest[0], d, (size_t)n * sizeof *d);                                                              \
            memcpy(rest[1], x, (size_t)n * sizeof *x);                                                              \
            vd_store(rest[0], vd_mul(vd_load(rest[0]), name##_f64(vd_load(rest[1]))));                              \
            memcpy(y, rest[0], (size_t)n * sizeof *y);                                                              \
        }                                                                                                           \
    }

#define GF_DEFINE_LOOPS(name)                                                                                       \
    GF_DEFINE_PAIR(name)                                                                                            \
    GF_DEFINE_LOOP(name, f16, uint16_t)                                                                             \
    GF_DEFINE_LOOP(name, bf16, uint16_t)                                                                            \
    GF_DEFINE_LOOP(name, f32, float)                                                                                \
    GF_DEFINE_LOOP_F64(name)

#define GF_DEFINE_PRODUCTS(name)                                                                                    \
    GF_DEFINE_PRODUCT(name, f16, uint16_t)                                                                          \
    GF_DEFINE_PRODUCT(name, bf16, uint16_t)                                                                         \
    GF_DEFINE_PRODUCT(name, f32, float)                                                                             \
    GF_DEFINE_PRODUCT_F64(name)

GF_DEFINE_LOOPS(none0) GF_DEFINE_LOOPS(none1) GF_DEFINE_LOOPS(none2)
GF_DEFINE_LOOPS(tanh0) GF_DEFINE_LOOPS(tanh1) GF_DEFINE_LOOPS(tanh2)
GF_DEFINE_LOOPS(quick0) GF_DEFINE_LOOPS(quick1) GF_DEFINE_LOOPS(quick2)
GF_DEFINE_PRODUCTS(none1) GF_DEFINE_PRODUCTS(tanh1) GF_DEFINE_PRODUCTS(quick1)

#define GF_ROW(type)                                                                                                \
    {none0_loop_##type, none1_loop_##type, none2_loop_##type, tanh0_loop_##type, tanh1_loop_##type,                 \
     tanh2_loop_##type, quick0_loop_##type, quick1_loop_##type, quick2_loop_##type}
#define GF_PRODUCT_ROW(type) {none1_product_##type, tanh1_product_##type, quick1_product_##type}

const gf_kernels GF_KERNELS = {
    GF_ISA_NAME,
    {GF_ROW(f16), GF_ROW(bf16), GF_ROW(f32), GF_ROW(f64)},
    {GF_PRODUCT_ROW(f16), GF_PRODUCT_ROW(bf16), GF_PRODUCT_ROW(f32), GF_PRODUCT_ROW(f64)},
};
