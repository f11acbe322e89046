/* What dispatch.c and rows.c share: the floating-point environment, what a thread is worth, strided copies. */
#ifndef GF_COMMON_H
#define GF_COMMON_H

#include "dispatch.h"

/* Kernels run in the default environment (nearest, subnormals kept, nothing trapped), whatever the caller or a pool
 * thread has set, and the caller's state and status flags are put back: no warnings, no side effects. */
#ifdef GF_HAVE_X86
#include <immintrin.h>
typedef unsigned gf_env;
static inline gf_env env_enter(void)
{
    gf_env saved = _mm_getcsr();
    _mm_setcsr(0x1f80);
    return saved;
}
static inline void env_leave(gf_env saved) { _mm_setcsr(saved); }
#else
#include <fenv.h>
typedef fenv_t gf_env;
static inline gf_env env_enter(void)
{
    gf_env saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}
static inline void env_leave(gf_env saved) { fesetenv(&saved); }
#endif

/* A thread is worth waking for this many bytes of input. */
#define GF_BYTES_PER_THREAD (192 * 1024)
/* What a thread fetches at a time: a quarter of its share, in these bounds. */
#define GF_MIN_PIECE (32 * 1024)
#define GF_MAX_PIECE (1024 * 1024)
#define GF_ALIGN 256 /* elements: threads share no cache line of an aligned array, whatever the dtype */

static const int gf_sizes[GF_DTYPES] = {2, 2, 4, 8};

/* Strided operands go through buffers of so many elements. */
#define GF_CHUNK 512

/* One side is dense: the compiler sees its step. */
#define GF_COPY(type)                                                                                               \
    if (to_step == sizeof(type))                                                                                    \
        for (intptr_t i = 0; i < n; i++, from += from_step) ((type *)to)[i] = *(const type *)from;                  \
    else                                                                                                            \
        for (intptr_t i = 0; i < n; i++, to += to_step) *(type *)to = ((const type *)from)[i];

static inline void copy_strided(char *to, intptr_t to_step, const char *from, intptr_t from_step, intptr_t n, int size)
{
    if (size == 2) {
        GF_COPY(uint16_t)
    } else if (size == 4) {
        GF_COPY(uint32_t)
    } else {
        GF_COPY(uint64_t)
    }
}

/* How many of `count` units, each of so many bytes, a thread fetches at a time; *threads: how many are worth waking. */
static inline intptr_t gf_piece(intptr_t units, intptr_t bytes, intptr_t *threads)
{
    intptr_t total = units * bytes, usable, piece;
    *threads = total / GF_BYTES_PER_THREAD;
    if (*threads < 2) return units;
    usable = gf_usable_threads();
    if (*threads > usable) *threads = usable;
    piece = total / (4 * *threads);
    piece = piece < GF_MIN_PIECE ? GF_MIN_PIECE : piece > GF_MAX_PIECE ? GF_MAX_PIECE : piece;
    return (piece + bytes - 1) / bytes;
}

#endif
