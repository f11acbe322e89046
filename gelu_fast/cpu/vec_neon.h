/* NEON (aarch64): four floats, two doubles. */
#ifndef GF_VEC_H
#define GF_VEC_H

#include <arm_neon.h>
#include <stdint.h>

#define VF_LANES 4
#define VD_LANES 2

typedef float32x4_t vf;
typedef uint32x4_t vfi;
typedef float64x2_t vd;
typedef uint64x2_t vdi;

static inline vf vf_load_f32(const float *p) { return vld1q_f32(p); }
static inline void vf_store_f32(float *p, vf a) { vst1q_f32(p, a); }
static inline vf vf_set(float a) { return vdupq_n_f32(a); }
static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_fms(vf a, vf b, vf c) { return vfmaq_f32(vnegq_f32(c), a, b); }
static inline vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
static inline vf vf_abs(vf a) { return vabsq_f32(a); }
static inline vf vf_min(vf a, vf b) { return vminq_f32(a, b); } /* nan where either is nan */
static inline vf vf_max(vf a, vf b) { return vmaxq_f32(a, b); }
static inline vf vf_by_sign(vf x, vf neg, vf pos)
{
    return vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(x)), neg, pos);
}
static inline vf vf_rounded(vf a) { return a; } /* as stored */
static inline vd vd_rounded(vd a) { return a; }
/* Whether any lane of a or b is 8 or more; all are at least 4, so the bits tell. nan answers yes. */
static inline int vf_any_ge8(vf a, vf b)
{
    return vmaxvq_u32(vorrq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b))) >= 0x41000000;
}
/* Segments: four for z < 8, four beyond. */
#define VF_LAYOUT f32
#define VF_TABLE 8
static inline vfi vf_index(vf z) { return vshrq_n_u32(vreinterpretq_u32_f32(z), 21); }
static inline uint8x16_t vf_bytes(vfi i, uint32_t mask) /* byte numbers of lane i's float */
{
    i = vmulq_n_u32(vandq_u32(i, vdupq_n_u32(mask)), 0x04040404);
    return vreinterpretq_u8_u32(vaddq_u32(i, vdupq_n_u32(0x03020100)));
}
static inline vf vf_lookup_any(const float *column, vfi i)
{
    uint8x16x2_t table = {{vreinterpretq_u8_f32(vld1q_f32(column)), vreinterpretq_u8_f32(vld1q_f32(column + 4))}};
    return vreinterpretq_f32_u8(vqtbl2q_u8(table, vf_bytes(i, 7)));
}
static inline vf vf_lookup_near(const float *column, vfi i)
{
    return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(vld1q_f32(column + 4)), vf_bytes(i, 3)));
}
/* Adding it rounds n to an eighth and leaves the number of eighths in the low bits; 64 for what vf_scaled_ge8 undoes. */
#define VF_EIGHTHS (0x1.8p20f + 64)
/* 2^(n + 64) for m = n + VF_EIGHTHS, -128 < n <= 0; the table holds 2^0, 2^(1/8), ... times a constant */
static inline vf vf_exp2_eighths(const float *table, vf m)
{
    uint32x4_t bits = vreinterpretq_u32_f32(m), power = vshlq_n_u32(bits, 20);
    uint32x4_t fraction = vreinterpretq_u32_f32(vf_lookup_any(table, bits));
    return vreinterpretq_f32_u32(vaddq_u32(fraction, vandq_u32(power, vdupq_n_u32(0xff800000))));
}
/* p*2^-64, rounding a subnormal once, where z >= 8; else the other */
static inline vf vf_scaled_ge8(vf z, vf other, vf p, vf n)
{
    (void)n;
    return vbslq_f32(vcgeq_f32(z, vdupq_n_f32(8)), vf_mul(p, vf_set(0x1p-64f)), other);
}
static inline vf vf_load_f16(const uint16_t *h) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h))); }
static inline void vf_store_f16(uint16_t *h, vf a) { vst1_u16(h, vreinterpret_u16_f16(vcvt_f16_f32(a))); }
/* bfloat16 is float's upper half. Two vectors at once, the even and the odd elements: which lane a number is in does not
 * matter, and it saves every shuffle. */
static inline void vf_load2_bf16(const uint16_t *h, vf *even, vf *odd)
{
    uint32x4_t bits = vreinterpretq_u32_u16(vld1q_u16(h));
    *even = vreinterpretq_f32_u32(vshlq_n_u32(bits, 16));
    *odd = vreinterpretq_f32_u32(vandq_u32(bits, vdupq_n_u32(0xffff0000)));
}
/* To nearest even, in the upper half. A nan needs no care: its lower half is zero, as it comes from a bfloat16. */
static inline uint32x4_t vf_round_bf16(vf a)
{
    uint32x4_t bits = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    return vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
}
static inline void vf_store2_bf16(uint16_t *h, vf even, vf odd)
{
    uint32x4_t high = vandq_u32(vf_round_bf16(odd), vdupq_n_u32(0xffff0000));
    vst1q_u16(h, vreinterpretq_u16_u32(vorrq_u32(vshrq_n_u32(vf_round_bf16(even), 16), high)));
}

/* Two vectors of consecutive elements, from the even and the odd ones. */
static inline void vf_interleave(vf even, vf odd, vf *a, vf *b) { *a = vzip1q_f32(even, odd), *b = vzip2q_f32(even, odd); }

static inline vd vd_load_f64(const double *p) { return vld1q_f64(p); }
static inline void vd_store_f64(double *p, vd a) { vst1q_f64(p, a); }
static inline vd vd_set(double a) { return vdupq_n_f64(a); }
static inline vd vd_add(vd a, vd b) { return vaddq_f64(a, b); }
static inline vd vd_sub(vd a, vd b) { return vsubq_f64(a, b); }
static inline vd vd_mul(vd a, vd b) { return vmulq_f64(a, b); }
static inline vd vd_fma(vd a, vd b, vd c) { return vfmaq_f64(c, a, b); }
static inline vd vd_fms(vd a, vd b, vd c) { return vfmaq_f64(vnegq_f64(c), a, b); }
static inline vd vd_fnma(vd a, vd b, vd c) { return vfmsq_f64(c, a, b); }
static inline vd vd_less(vd p, vd q, vd low) { return vd_add(p, vd_fnma(p, q, low)); } /* p - p*q + low */
static inline vd vd_abs(vd a) { return vabsq_f64(a); }
static inline vd vd_min(vd a, vd b) { return vminq_f64(a, b); }
static inline vd vd_max(vd a, vd b) { return vmaxq_f64(a, b); }
static inline vd vd_by_sign(vd x, vd neg, vd pos)
{
    return vbslq_f64(vcltzq_s64(vreinterpretq_s64_f64(x)), neg, pos);
}
static inline vd vd_round(vd a) { return vrndnq_f64(a); }
static inline vd vd_exp2i(vd n)
{
    return vreinterpretq_f64_s64(vshlq_n_s64(vaddq_s64(vcvtq_s64_f64(n), vdupq_n_s64(1023)), 52));
}
static inline vd vd_where_ge8(vd z, vd a, vd b) { return vbslq_f64(vcgeq_f64(z, vdupq_n_f64(8)), a, b); }
/* Likewise for double. */
static inline int vd_any_ge8(vd a, vd b)
{
    uint64x2_t bits = vorrq_u64(vreinterpretq_u64_f64(a), vreinterpretq_u64_f64(b));
    return ((vgetq_lane_u64(bits, 0) | vgetq_lane_u64(bits, 1)) & 0x3fe0000000000000) != 0;
}
static inline vdi vd_index(vd z, uint64_t first)
{
    return vsubq_u64(vshrq_n_u64(vreinterpretq_u64_f64(z), 47), vdupq_n_u64(first));
}
static inline vdi vd_clamp(vdi i, uint64_t segments)
{
    return vbslq_u64(vcgtq_u64(i, vdupq_n_u64(segments - 1)), vdupq_n_u64(segments - 1), i);
}
/* The twelve numbers of each lane's row. */
static inline void vd_rows(const double (*table)[12], vdi i, vd c[12])
{
    const double *r0 = table[vgetq_lane_u64(i, 0)], *r1 = table[vgetq_lane_u64(i, 1)];
#pragma GCC unroll 6
    for (int k = 0; k < 12; k += 2) {
        vd a = vld1q_f64(r0 + k), b = vld1q_f64(r1 + k);
        c[k] = vzip1q_f64(a, b);
        c[k + 1] = vzip2q_f64(a, b);
    }
}

#endif
