/* Contiguous one-thread loops over gelu_math.h, for one ISA; included by kernels.h.
 *
 * The remainder of a vector's length goes through the same functions in a padded buffer, so its bits come from the same
 * instructions. 16-bit types are computed in float and rounded once, straight from and to their arrays: going through
 * a float buffer in blocks took up to a fifth longer.
 */
#include <string.h>

#include "gelu_math.h"

/* Two vectors of consecutive elements; bfloat16's are in the vec_*.h. */
#define GF_DEFINE_LOAD2(V, type, T, lanes)                                                                          \
    GF_INLINE void V##_load2_##type(const T *p, V *a, V *b) { *a = V##_load_##type(p), *b = V##_load_##type(p + lanes); } \
    GF_INLINE void V##_store2_##type(T *p, V a, V b) { V##_store_##type(p, a), V##_store_##type(p + lanes, b); }
GF_DEFINE_LOAD2(vf, f32, float, VF_LANES)
GF_DEFINE_LOAD2(vf, f16, uint16_t, VF_LANES)
GF_DEFINE_LOAD2(vd, f64, double, VD_LANES)

/* One test for both vectors decides whether the table's first half will do; for float32 on data like N(0, 1) that branch
 * goes the other way in a few percent of cases. */
#define GF_DEFINE_PAIR(V, name)                                                                                     \
    GF_INLINE void V##_##name##_pair(V x0, V x1, V *y0, V *y1)                                                      \
    {                                                                                                               \
        V z0 = V##_##name##_z(x0), z1 = V##_##name##_z(x1);                                                         \
        if (__builtin_expect(V##_any_ge8(z0, z1), 0)) {                                                             \
            *y0 = V##_##name##_any(x0, z0);                                                                         \
            *y1 = V##_##name##_any(x1, z1);                                                                         \
        } else {                                                                                                    \
            *y0 = V##_##name##_near(x0, z0);                                                                        \
            *y1 = V##_##name##_near(x1, z1);                                                                        \
        }                                                                                                           \
    }

/* Fewer than `step` elements, padded. Kept apart, so that the compiler sees one plain loop below. */
#define GF_DEFINE_PART(V, name, type, T, step)                                                                      \
    static __attribute__((noinline)) void name##_part_##type(const T *x, T *y, intptr_t n)                          \
    {                                                                                                               \
        T rest[step] = {0};                                                                                         \
        V x0, x1, y0, y1;                                                                                           \
        memcpy(rest, x, (size_t)n * sizeof *x);                                                                     \
        V##_load2_##type(rest, &x0, &x1);                                                                           \
        V##_##name##_pair(x0, x1, &y0, &y1);                                                                        \
        V##_store2_##type(rest, y0, y1);                                                                            \
        memcpy(y, rest, (size_t)n * sizeof *y);                                                                     \
    }

#define GF_DEFINE_LOOP(V, name, type, T, step)                                                                      \
    GF_DEFINE_PART(V, name, type, T, step)                                                                          \
    static void name##_loop_##type(const void *px, void *py, intptr_t n)                                            \
    {                                                                                                               \
        const T *x = px;                                                                                            \
        T *y = py;                                                                                                  \
        for (; n >= step; n -= step, x += step, y += step) {                                                        \
            V x0, x1, y0, y1;                                                                                       \
            V##_load2_##type(x, &x0, &x1);                                                                          \
            V##_##name##_pair(x0, x1, &y0, &y1);                                                                    \
            V##_store2_##type(y, y0, y1);                                                                           \
        }                                                                                                           \
        if (n > 0) name##_part_##type(x, y, n);                                                                     \
    }

/* Past the caches, after the few elements that align y to a vector. */
#define GF_DEFINE_STREAM(V, name, type, T, step)                                                                    \
    static void name##_stream_##type(const void *px, void *py, intptr_t n)                                          \
    {                                                                                                               \
        const T *x = px;                                                                                            \
        T *y = py;                                                                                                  \
        intptr_t part = GF_TO_ALIGNED(T, y, step);                                                                  \
        if (part > n) part = n;                                                                                     \
        if (part > 0) name##_part_##type(x, y, part);                                                               \
        for (n -= part, x += part, y += part; n >= step; n -= step, x += step, y += step) {                         \
            V x0, x1, y0, y1;                                                                                       \
            V##_load2_##type(x, &x0, &x1);                                                                          \
            V##_##name##_pair(x0, x1, &y0, &y1);                                                                    \
            V##_stream2_##type(y, y0, y1);                                                                          \
        }                                                                                                           \
        if (n > 0) name##_part_##type(x, y, n);                                                                     \
        GF_STREAM_END();                                                                                            \
    }

/* dy * f'(x): f' is rounded to the dtype it is computed in, then the product. */
#define GF_PRODUCT_STEP(V, name, type, store, d, x, y)                                                              \
    do {                                                                                                            \
        V x0, x1, d0, d1, y0, y1;                                                                                   \
        V##_load2_##type(x, &x0, &x1);                                                                              \
        V##_load2_##type(d, &d0, &d1);                                                                              \
        V##_##name##_pair(x0, x1, &y0, &y1);                                                                        \
        V##_##store##_##type(y, V##_mul(d0, V##_rounded(y0)), V##_mul(d1, V##_rounded(y1)));                        \
    } while (0)

#define GF_DEFINE_PRODUCT(V, name, type, T, step)                                                                   \
    static __attribute__((noinline)) void name##_product_part_##type(const T *d, const T *x, T *y, intptr_t n)      \
    {                                                                                                               \
        T rest[2][step] = {{0}};                                                                                    \
        memcpy(rest[0], d, (size_t)n * sizeof *d);                                                                  \
        memcpy(rest[1], x, (size_t)n * sizeof *x);                                                                  \
        GF_PRODUCT_STEP(V, name, type, store2, rest[0], rest[1], rest[0]);                                          \
        memcpy(y, rest[0], (size_t)n * sizeof *y);                                                                  \
    }                                                                                                               \
    static void name##_product_##type(const void *pd, const void *px, void *py, intptr_t n)                         \
    {                                                                                                               \
        const T *d = pd, *x = px;                                                                                   \
        T *y = py;                                                                                                  \
        for (; n >= step; n -= step, d += step, x += step, y += step)                                               \
            GF_PRODUCT_STEP(V, name, type, store2, d, x, y);                                                        \
        if (n > 0) name##_product_part_##type(d, x, y, n);                                                          \
    }

#define GF_DEFINE_PRODUCT_STREAM(V, name, type, T, step)                                                            \
    static void name##_product_stream_##type(const void *pd, const void *px, void *py, intptr_t n)                  \
    {                                                                                                               \
        const T *d = pd, *x = px;                                                                                   \
        T *y = py;                                                                                                  \
        intptr_t part = GF_TO_ALIGNED(T, y, step);                                                                  \
        if (part > n) part = n;                                                                                     \
        if (part > 0) name##_product_part_##type(d, x, y, part);                                                    \
        for (n -= part, d += part, x += part, y += part; n >= step; n -= step, d += step, x += step, y += step)     \
            GF_PRODUCT_STEP(V, name, type, stream2, d, x, y);                                                       \
        if (n > 0) name##_product_part_##type(d, x, y, n);                                                          \
        GF_STREAM_END();                                                                                            \
    }

/* Elements before the first one of y at a multiple of a vector's size. */
#define GF_TO_ALIGNED(T, y, step) (intptr_t)((0 - (uintptr_t)(y)) % (sizeof(T) * (step) / 2) / sizeof(T))

#define GF_FOR_TYPES(define, name)                                                                                  \
    define(vf, name, f16, uint16_t, 2 * VF_LANES)                                                                   \
    define(vf, name, bf16, uint16_t, 2 * VF_LANES)                                                                  \
    define(vf, name, f32, float, 2 * VF_LANES)                                                                      \
    define(vd, name, f64, double, 2 * VD_LANES)

#ifdef GF_STREAM_END
#define GF_DEFINE_STREAMS(define, name)                                                                             \
    define(vf, name, f32, float, 2 * VF_LANES)                                                                      \
    define(vd, name, f64, double, 2 * VD_LANES)
#else
#define GF_DEFINE_STREAMS(define, name)
#endif

#define GF_DEFINE_LOOPS(name)                                                                                       \
    GF_DEFINE_PAIR(vf, name)                                                                                        \
    GF_DEFINE_PAIR(vd, name)                                                                                        \
    GF_FOR_TYPES(GF_DEFINE_LOOP, name)                                                                              \
    GF_DEFINE_STREAMS(GF_DEFINE_STREAM, name)
#define GF_DEFINE_PRODUCTS(name)                                                                                    \
    GF_FOR_TYPES(GF_DEFINE_PRODUCT, name)                                                                           \
    GF_DEFINE_STREAMS(GF_DEFINE_PRODUCT_STREAM, name)

GF_DEFINE_LOOPS(none0) GF_DEFINE_LOOPS(none1) GF_DEFINE_LOOPS(none2)
GF_DEFINE_LOOPS(tanh0) GF_DEFINE_LOOPS(tanh1) GF_DEFINE_LOOPS(tanh2)
GF_DEFINE_LOOPS(quick0) GF_DEFINE_LOOPS(quick1) GF_DEFINE_LOOPS(quick2)
GF_DEFINE_PRODUCTS(none1) GF_DEFINE_PRODUCTS(tanh1) GF_DEFINE_PRODUCTS(quick1)
