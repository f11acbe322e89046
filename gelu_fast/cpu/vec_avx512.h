/* AVX-512 (F, DQ, BW, VL): sixteen floats, eight doubles. */
#ifndef GF_VEC_H
#define GF_VEC_H

#include <immintrin.h>
#include <stdint.h>

#define VF_LANES 16
#define VD_LANES 8

typedef __m512 vf;
typedef __m512i vfi;
typedef __m512d vd;
typedef __m512i vdi;

#define GF_NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

static inline vf vf_load_f32(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store_f32(float *p, vf a) { _mm512_storeu_ps(p, a); }
/* Past the caches, to an address that is a multiple of a vector's size. */
static inline void vf_stream2_f32(float *p, vf a, vf b) { _mm512_stream_ps(p, a), _mm512_stream_ps(p + VF_LANES, b); }
static inline void vd_stream2_f64(double *p, vd a, vd b) { _mm512_stream_pd(p, a), _mm512_stream_pd(p + VD_LANES, b); }
#define GF_STREAM_END() _mm_sfence()
static inline vf vf_set(float a) { return _mm512_set1_ps(a); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_fms(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
static inline vf vf_abs(vf a) { return _mm512_abs_ps(a); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); } /* b where either is nan */
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_by_sign(vf x, vf neg, vf pos)
{
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), pos, neg);
}
static inline vf vf_rounded(vf a) { return a; } /* as stored */
static inline vd vd_rounded(vd a) { return a; }
#define VF_EIGHTHS 0x1.8p20f /* adding it rounds to an eighth and leaves the number of eighths in the low bits */
/* 2^(n - floor(n)) for m = n + VF_EIGHTHS; the table holds 2^0, 2^(1/8), ... times a constant */
static inline vf vf_exp2_eighths(const float *table, vf m)
{
    return _mm512_permutexvar_ps(_mm512_castps_si512(m), _mm512_broadcast_f32x8(_mm256_load_ps(table)));
}
/* p*2^floor(n), rounding a subnormal once, where z >= 8; else the other */
static inline vf vf_scaled_ge8(vf z, vf other, vf p, vf n)
{
    return _mm512_mask_scalef_ps(other, _mm512_cmp_ps_mask(z, vf_set(8), _CMP_GE_OQ), p, n);
}
/* Whether any lane of a or b is 8 or more; all are at least 4, so the bit tells. nan answers yes. */
static inline int vf_any_ge8(vf a, vf b)
{
    return _mm512_test_epi32_mask(_mm512_castps_si512(_mm512_or_ps(a, b)), _mm512_set1_epi32(0x3f000000)) != 0;
}
/* Segments: sixteen for z < 8, sixteen beyond. */
#define VF_LAYOUT f32x32
#define VF_TABLE 32
static inline vfi vf_index(vf z) { return _mm512_srli_epi32(_mm512_castps_si512(z), 19); }
static inline vf vf_lookup_any(const float *column, vfi i)
{
    return _mm512_permutex2var_ps(_mm512_load_ps(column), i, _mm512_load_ps(column + 16));
}
static inline vf vf_lookup_near(const float *column, vfi i)
{
    return _mm512_permutexvar_ps(i, _mm512_load_ps(column + 16));
}
static inline vf vf_load_f16(const uint16_t *h) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)h)); }
static inline void vf_store_f16(uint16_t *h, vf a)
{
    _mm256_storeu_si256((__m256i *)h, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
/* bfloat16 is float's upper half. Two vectors at once, the even and the odd elements: which lane a number is in does not
 * matter, and it saves every shuffle. */
static inline void vf_load2_bf16(const uint16_t *h, vf *even, vf *odd)
{
    __m512i bits = _mm512_loadu_si512(h);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
}
/* To nearest even, in the upper half. A nan needs no care: its lower half is zero, as it comes from a bfloat16. */
static inline __m512i vf_round_bf16(vf a)
{
    __m512i bits = _mm512_castps_si512(a), up = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    return _mm512_mask_sub_epi32(up, _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000)), up, _mm512_set1_epi32(-1));
}
static inline void vf_store2_bf16(uint16_t *h, vf even, vf odd)
{
    __m512i a = _mm512_srli_epi32(vf_round_bf16(even), 16);
    _mm512_storeu_si512(h, _mm512_mask_blend_epi16(0xaaaaaaaau, a, vf_round_bf16(odd)));
}

/* Two vectors of consecutive elements, from the even and the odd ones. */
static inline void vf_interleave(vf even, vf odd, vf *a, vf *b)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *a = _mm512_permutex2var_ps(even, low, odd);
    *b = _mm512_permutex2var_ps(even, _mm512_add_epi32(low, _mm512_set1_epi32(8)), odd);
}

static inline vd vd_load_f64(const double *p) { return _mm512_loadu_pd(p); }
static inline void vd_store_f64(double *p, vd a) { _mm512_storeu_pd(p, a); }
static inline vd vd_set(double a) { return _mm512_set1_pd(a); }
static inline vd vd_add(vd a, vd b) { return _mm512_add_pd(a, b); }
static inline vd vd_sub(vd a, vd b) { return _mm512_sub_pd(a, b); }
static inline vd vd_mul(vd a, vd b) { return _mm512_mul_pd(a, b); }
static inline vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
static inline vd vd_fms(vd a, vd b, vd c) { return _mm512_fmsub_pd(a, b, c); }
static inline vd vd_fnma(vd a, vd b, vd c) { return _mm512_fnmadd_pd(a, b, c); }
static inline vd vd_less(vd p, vd q, vd low) { return vd_add(p, vd_fnma(p, q, low)); } /* p - p*q + low */
static inline vd vd_abs(vd a) { return _mm512_abs_pd(a); }
static inline vd vd_min(vd a, vd b) { return _mm512_min_pd(a, b); }
static inline vd vd_max(vd a, vd b) { return _mm512_max_pd(a, b); }
static inline vd vd_by_sign(vd x, vd neg, vd pos)
{
    return _mm512_mask_blend_pd(_mm512_movepi64_mask(_mm512_castpd_si512(x)), pos, neg);
}
static inline vd vd_round(vd a) { return _mm512_roundscale_pd(a, GF_NEAREST); }
static inline vd vd_exp2i(vd n)
{
    return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(_mm512_add_pd(n, vd_set(0x1.8p52 + 1023))), 52));
}
static inline vd vd_where_ge8(vd z, vd a, vd b)
{
    return _mm512_mask_mov_pd(b, _mm512_cmp_pd_mask(z, vd_set(8), _CMP_GE_OQ), a);
}
/* Likewise for double. */
static inline int vd_any_ge8(vd a, vd b)
{
    return _mm512_test_epi64_mask(_mm512_castpd_si512(_mm512_or_pd(a, b)), _mm512_set1_epi64(0x3fe0000000000000)) != 0;
}
/* Near segments: sixteen, each column in two registers. */
#define VD_COLUMNS
static inline vdi vd_column_index(vd z) { return _mm512_srli_epi64(_mm512_castpd_si512(z), 48); }
static inline vd vd_lookup16(const double *column, vdi i)
{
    return _mm512_permutex2var_pd(_mm512_load_pd(column), i, _mm512_load_pd(column + 8));
}
static inline vdi vd_index(vd z, uint64_t first)
{
    return _mm512_sub_epi64(_mm512_srli_epi64(_mm512_castpd_si512(z), 47), _mm512_set1_epi64((long long)first));
}
static inline vdi vd_clamp(vdi i, uint64_t segments)
{
    return _mm512_min_epu64(i, _mm512_set1_epi64((long long)segments - 1));
}
static inline __m512d vd_pair(const double *low, const double *high)
{
    return _mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd(low)), _mm256_loadu_pd(high), 1);
}
/* The twelve numbers of each lane's row: 4x4 transpositions in both halves at once. */
static inline void vd_rows(const double (*table)[12], vdi i, vd c[12])
{
    const __m512i evens = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), odds = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    uint64_t n[8];
    _mm512_storeu_si512(n, i);
#pragma GCC unroll 3
    for (int k = 0; k < 12; k += 4) {
        vd a = vd_pair(table[n[0]] + k, table[n[4]] + k), b = vd_pair(table[n[1]] + k, table[n[5]] + k);
        vd d = vd_pair(table[n[2]] + k, table[n[6]] + k), e = vd_pair(table[n[3]] + k, table[n[7]] + k);
        vd ab = _mm512_unpacklo_pd(a, b), ab1 = _mm512_unpackhi_pd(a, b);
        vd de = _mm512_unpacklo_pd(d, e), de1 = _mm512_unpackhi_pd(d, e);
        c[k] = _mm512_permutex2var_pd(ab, evens, de);
        c[k + 1] = _mm512_permutex2var_pd(ab1, evens, de1);
        c[k + 2] = _mm512_permutex2var_pd(ab, odds, de);
        c[k + 3] = _mm512_permutex2var_pd(ab1, odds, de1);
    }
}

#endif
