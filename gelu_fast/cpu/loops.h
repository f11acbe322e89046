/* Contiguous one-thread loops over gelu_math.h, for one ISA; included once by each isa_*.c.
 *
 * The remainder of a vector's length goes through the same loop in a padded buffer, so its bits come from the same
 * instructions. 16-bit types go through float in blocks that stay in the first-level cache.
 */
#include <string.h>

#include "gelu_math.h"

#define GF_STEP_F32 (2 * VF_LANES)
#define GF_BLOCK 512

/* Two float vectors at a time. One test for both decides whether the table's first half will do; on data like N(0, 1)
 * that branch goes the other way in a few percent of cases, which costs less than listing the lanes to redo. */
#define GF_DEFINE_LOOPS(name)                                                                                       \
    GF_INLINE void name##_pair(const float *x, vf *y0, vf *y1)                                                      \
    {                                                                                                               \
        vf x0 = vf_load(x), x1 = vf_load(x + VF_LANES), z0 = name##_z(x0), z1 = name##_z(x1);                       \
        if (__builtin_expect(vf_any_ge8(z0, z1), 0)) {                                                              \
            *y0 = name##_any(x0, z0);                                                                               \
            *y1 = name##_any(x1, z1);                                                                               \
        } else {                                                                                                    \
            *y0 = name##_near(x0, z0);                                                                              \
            *y1 = name##_near(x1, z1);                                                                              \
        }                                                                                                           \
    }                                                                                                               \
    static void name##_loop_f32(const void *px, void *py, intptr_t n)                                               \
    {                                                                                                               \
        const float *x = px;                                                                                        \
        float *y = py, rest[GF_STEP_F32] = {0};                                                                     \
        vf y0, y1;                                                                                                  \
        for (; n >= GF_STEP_F32; n -= GF_STEP_F32, x += GF_STEP_F32, y += GF_STEP_F32) {                            \
            name##_pair(x, &y0, &y1);                                                                               \
            vf_store(y, y0);                                                                                        \
            vf_store(y + VF_LANES, y1);                                                                             \
        }                                                                                                           \
        if (n > 0) {                                                                                                \
            memcpy(rest, x, (size_t)n * sizeof *x);                                                                 \
            name##_pair(rest, &y0, &y1);                                                                            \
            vf_store(rest, y0);                                                                                     \
            vf_store(rest + VF_LANES, y1);                                                                          \
            memcpy(y, rest, (size_t)n * sizeof *y);                                                                 \
        }                                                                                                           \
    }                                                                                                               \
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
    }                                                                                                               \
    GF_DEFINE_16(name, f16)                                                                                         \
    GF_DEFINE_16(name, bf16)

#define GF_DEFINE_16(name, type)                                                                                    \
    static void name##_loop_##type(const void *px, void *py, intptr_t n)                                            \
    {                                                                                                               \
        const uint16_t *x = px;                                                                                     \
        uint16_t *y = py;                                                                                           \
        float block[GF_BLOCK];                                                                                      \
        for (intptr_t m; n > 0; n -= m, x += m, y += m) {                                                           \
            m = n < GF_BLOCK ? n : GF_BLOCK;                                                                        \
            gf_load_##type(x, block, m);                                                                            \
            name##_loop_f32(block, block, m);                                                                       \
            gf_store_##type(block, y, m);                                                                           \
        }                                                                                                           \
    }

/* dy * f'(x): f' is rounded to the dtype it is computed in, then the product. */
#define GF_DEFINE_PRODUCTS(name)                                                                                    \
    static void name##_product_f32(const void *pd, const void *px, void *py, intptr_t n)                            \
    {                                                                                                               \
        const float *d = pd, *x = px;                                                                               \
        float *y = py, rest[2][GF_STEP_F32] = {{0}};                                                                \
        vf y0, y1;                                                                                                  \
        for (; n >= GF_STEP_F32; n -= GF_STEP_F32, d += GF_STEP_F32, x += GF_STEP_F32, y += GF_STEP_F32) {          \
            name##_pair(x, &y0, &y1);                                                                               \
            y0 = vf_mul(vf_load(d), vf_rounded(y0));                                                                \
            y1 = vf_mul(vf_load(d + VF_LANES), vf_rounded(y1));                                                     \
            vf_store(y, y0);                                                                                        \
            vf_store(y + VF_LANES, y1);                                                                             \
        }                                                                                                           \
        if (n > 0) {                                                                                                \
            memcpy(rest[0], d, (size_t)n * sizeof *d);                                                              \
            memcpy(rest[1], x, (size_t)n * sizeof *x);                                                              \
            name##_pair(rest[1], &y0, &y1);                                                                         \
            y0 = vf_mul(vf_load(rest[0]), vf_rounded(y0));                                                          \
            y1 = vf_mul(vf_load(rest[0] + VF_LANES), vf_rounded(y1));                                               \
            vf_store(rest[0], y0);                                                                                  \
            vf_store(rest[0] + VF_LANES, y1);                                                                       \
            memcpy(y, rest[0], (size_t)n * sizeof *y);                                                              \
        }                                                                                                           \
    }                                                                                                               \
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
    }                                                                                                               \
    GF_DEFINE_PRODUCT_16(name, f16)                                                                                 \
    GF_DEFINE_PRODUCT_16(name, bf16)

#define GF_DEFINE_PRODUCT_16(name, type)                                                                            \
    static void name##_product_##type(const void *pd, const void *px, void *py, intptr_t n)                         \
    {                                                                                                               \
        const uint16_t *d = pd, *x = px;                                                                            \
        uint16_t *y = py;                                                                                           \
        float block[2][GF_BLOCK];                                                                                   \
        for (intptr_t m; n > 0; n -= m, d += m, x += m, y += m) {                                                   \
            m = n < GF_BLOCK ? n : GF_BLOCK;                                                                        \
            gf_load_##type(d, block[0], m);                                                                         \
            gf_load_##type(x, block[1], m);                                                                         \
            name##_product_f32(block[0], block[1], block[0], m);                                                    \
            gf_store_##type(block[0], y, m);                                                                        \
        }                                                                                                           \
    }

static void gf_load_f16(const uint16_t *h, float *f, intptr_t n)
{
    uint16_t rest[VF_LANES] = {0};
    float wide[VF_LANES];
    for (; n >= VF_LANES; n -= VF_LANES, h += VF_LANES, f += VF_LANES) vf_from_half(h, f);
    if (n > 0) {
        memcpy(rest, h, (size_t)n * sizeof *h);
        vf_from_half(rest, wide);
        memcpy(f, wide, (size_t)n * sizeof *f);
    }
}

static void gf_store_f16(const float *f, uint16_t *h, intptr_t n)
{
    uint16_t rest[VF_LANES];
    float wide[VF_LANES] = {0};
    for (; n >= VF_LANES; n -= VF_LANES, h += VF_LANES, f += VF_LANES) vf_to_half(f, h);
    if (n > 0) {
        memcpy(wide, f, (size_t)n * sizeof *f);
        vf_to_half(wide, rest);
        memcpy(h, rest, (size_t)n * sizeof *h);
    }
}

/* bfloat16 is float's upper half. Integer code on whole arrays: the compiler vectorises it for the ISA. */
static void gf_load_bf16(const uint16_t *h, float *f, intptr_t n)
{
    for (intptr_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)h[i] << 16;
        memcpy(f + i, &bits, 4);
    }
}

static void gf_store_bf16(const float *f, uint16_t *h, intptr_t n)
{
    for (intptr_t i = 0; i < n; i++) {
        uint32_t bits, even;
        memcpy(&bits, f + i, 4);
        even = bits + 0x7fff + (bits >> 16 & 1);
        h[i] = (uint16_t)(((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : even) >> 16);
    }
}

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
