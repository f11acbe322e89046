/* Plain C, one lane, any architecture. A float lane is a double: without FMA that is what keeps products exact. */
#ifndef GF_VEC_H
#define GF_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define VF_LANES 1
#define VD_LANES 1

typedef double vf;
typedef double vd;
typedef uint64_t vfi; /* segment index */
typedef uint64_t vdi;

static inline uint64_t bits64(double a) { uint64_t b; memcpy(&b, &a, 8); return b; }
static inline double from64(uint64_t b) { double a; memcpy(&a, &b, 8); return a; }

/* The operations on doubles; the float lane's are the same, loads and stores apart. */
static inline vd vd_load_f64(const double *p) { return *p; }
static inline void vd_store_f64(double *p, vd a) { *p = a; }
static inline vd vd_set(double a) { return a; }
static inline vd vd_add(vd a, vd b) { return a + b; }
static inline vd vd_sub(vd a, vd b) { return a - b; }
static inline vd vd_mul(vd a, vd b) { return a * b; }
static inline vd vd_fma(vd a, vd b, vd c) { return a * b + c; }
static inline vd vd_fnma(vd a, vd b, vd c) { return c - a * b; }
static inline vd vd_abs(vd a) { return fabs(a); }
static inline vd vd_min(vd a, vd b) { return a < b ? a : b; }
static inline vd vd_max(vd a, vd b) { return a > b ? a : b; }
static inline vd vd_by_sign(vd x, vd neg, vd pos) { return signbit(x) ? neg : pos; }
static inline vd vd_round(vd a) { return a + 0x1.8p52 - 0x1.8p52; } /* 0 <= a < 2^51 */
static inline vd vd_exp2i(vd n) { return from64(bits64(n + (0x1.8p52 + 1023)) << 52); }
/* a*b - c with the product exact (Dekker's splitting stands in for FMA). */
static inline vd vd_fms(vd a, vd b, vd c)
{
    double p = a * b, sa = a * 134217729.0, sb = b * 134217729.0;
    double ah = sa - (sa - a), al = a - ah, bh = sb - (sb - b), bl = b - bh;
    double e = ((ah * bh - p) + ah * bl + al * bh) + al * bl;
    return (p - c) + e;
}
/* p - p*q + low, 0 <= |q| < 1/2, rounded nearly once. */
static inline vd vd_less(vd p, vd q, vd low)
{
    double product = p * q, rest = vd_fms(p, q, product), d = p - product;
    return d + ((((p - d) - product) - rest) + low);
}
static inline vd vd_where_ge8(vd z, vd a, vd b) { return z >= 8 ? a : b; }
static inline int vd_any_ge8(vd a, vd b) { return !(a < 8 && b < 8); }
static inline vdi vd_index(vd z, uint64_t first) { return (bits64(z) >> 47) - first; }
static inline vdi vd_clamp(vdi i, uint64_t segments) { return i < segments ? i : segments - 1; }
static inline void vd_rows(const double (*table)[12], vdi i, vd c[12]) { memcpy(c, table[i], sizeof table[i]); }

static inline vf vf_load_f32(const float *p) { return *p; }
static inline void vf_store_f32(float *p, vf a) { *p = (float)a; }
#define vf_set vd_set
#define vf_add vd_add
#define vf_sub vd_sub
#define vf_mul vd_mul
#define vf_fma vd_fma
#define vf_fnma vd_fnma
#define vf_abs vd_abs
#define vf_min vd_min
#define vf_max vd_max
#define vf_by_sign vd_by_sign
static inline vf vf_rounded(vf a) { return (float)a; } /* as stored */
static inline vd vd_rounded(vd a) { return a; }
static inline vf vf_fms(vf a, vf b, vf c) { return a * b - c; }
#define vf_any_ge8 vd_any_ge8
/* Segments: four for z < 8, four beyond. */
#define VF_LAYOUT f32
#define VF_TABLE 8
static inline vfi vf_index(vf z) { return bits64(z) >> 50; }
static inline vf vf_lookup_any(const float *column, vfi i) { return column[i & 7]; }
static inline vf vf_lookup_near(const float *column, vfi i) { return column[4 + (i & 3)]; }
#define VF_EIGHTHS 0x1.8p49 /* adding it rounds to an eighth and leaves the number of eighths in the low bits */
/* 2^n for m = n + VF_EIGHTHS, n <= 0; the table holds 2^0, 2^(1/8), ... times a constant */
static inline vf vf_exp2_eighths(const float *table, vf m)
{
    return from64(bits64(table[bits64(m) & 7]) + ((bits64(m) >> 3) << 52));
}
static inline vf vf_scaled_ge8(vf z, vf other, vf p, vf n) { return (void)n, z >= 8 ? p : other; }
static inline vf vf_load_f16(const uint16_t *h)
{
    uint32_t sign = (uint32_t)(*h & 0x8000) << 16, exp = (*h >> 10) & 31, man = *h & 0x3ff, bits;
    float f = (float)man * 0x1p-24f; /* a subnormal's value */
    memcpy(&bits, &f, 4);
    if (exp != 0) bits = (exp == 31 ? 0x7f800000u : (exp + 112) << 23) | man << 13;
    bits |= sign;
    memcpy(&f, &bits, 4);
    return f;
}

static inline void vf_store_f16(uint16_t *h, vf a)
{
    float f = (float)a;
    uint32_t bits, sign;
    memcpy(&bits, &f, 4);
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits >= 0x7f800000) {
        *h = (uint16_t)(sign | 0x7c00 | (bits > 0x7f800000 ? 0x200 | (bits >> 13 & 0x3ff) : 0));
    } else if (bits < 0x38800000) { /* subnormal in half: float addition rounds to a multiple of 2^-24 */
        memcpy(&f, &bits, 4);
        f += 0.5f;
        memcpy(&bits, &f, 4);
        *h = (uint16_t)(sign | (bits - 0x3f000000));
    } else {
        bits = bits + 0xfff + (bits >> 13 & 1) - 0x38000000;
        *h = (uint16_t)(sign | (bits >= 0x0f800000 ? 0x7c00 : bits >> 13));
    }
}

static inline vf vf_load_bf16(const uint16_t *h) /* bfloat16 is float's upper half */
{
    uint32_t bits = (uint32_t)*h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline void vf_store_bf16(uint16_t *h, vf a)
{
    float f = (float)a;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    *h = (uint16_t)((f != f ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline void vf_load2_bf16(const uint16_t *h, vf *a, vf *b) { *a = vf_load_bf16(h), *b = vf_load_bf16(h + 1); }
static inline void vf_store2_bf16(uint16_t *h, vf a, vf b) { vf_store_bf16(h, a), vf_store_bf16(h + 1, b); }
static inline void vf_interleave(vf even, vf odd, vf *a, vf *b) { *a = even, *b = odd; }

#endif
