/* Chooses the ISA once, splits work over threads, and walks NumPy's strides. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "dispatch.h"

#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#endif

/* -- which ISA ---------------------------------------------------------------------------------------------------- */

static const gf_kernels *kernels = &gf_baseline;
static const char *names[5];

static const gf_kernels *by_name(const char *name)
{
#ifdef GF_HAVE_X86
    if (!strcmp(name, "avx512")) return &gf_avx512;
    if (!strcmp(name, "avx2")) return &gf_avx2;
#endif
#ifdef GF_HAVE_NEON
    if (!strcmp(name, "neon")) return &gf_neon;
#endif
    return &gf_baseline;
}

const char *const *gf_available(void)
{
    int n = 0;
#ifdef GF_HAVE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
            names[n++] = gf_avx512.name;
        names[n++] = gf_avx2.name; /* every CPU with AVX2 has F16C */
    }
#endif
#ifdef GF_HAVE_NEON
    names[n++] = gf_neon.name;
#endif
    names[n++] = gf_baseline.name;
    names[n] = NULL;
    return names;
}

int gf_select(const char *name)
{
    const char *const *have = gf_available();
    if (name == NULL) name = have[0];
    for (int i = 0; have[i]; i++) {
        if (!strcmp(have[i], name)) {
            kernels = by_name(name);
            return 0;
        }
    }
    return -1;
}

const char *gf_selected(void) { return kernels->name; }

/* -- floating-point environment ----------------------------------------------------------------------------------- */

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

/* -- threads ------------------------------------------------------------------------------------------------------ */

static int threads = 1;
static int forked = 0;

int gf_get_threads(void) { return threads; }
void gf_set_threads(int n) { threads = n < 1 ? 1 : n; }

#ifdef _OPENMP
/* libgomp's pool does not survive a fork, and waiting for it would hang: a child stays on one thread. */
static void after_fork(void) { forked = 1; }

int gf_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return omp_get_num_procs();
}

int gf_usable_threads(void)
{
    int limit = omp_get_max_threads();
    if (forked || omp_in_parallel()) return 1;
    return threads < limit ? threads : limit;
}
#else
int gf_cpu_count(void) { return 1; }
int gf_usable_threads(void) { return 1; }
#endif

static int initialised = 0;

void gf_init(void)
{
    if (initialised) return;
    initialised = 1;
    threads = gf_cpu_count();
#ifdef _OPENMP
    pthread_atfork(NULL, NULL, after_fork);
#endif
}

/* A thread is worth starting for this many bytes of input: below it the fork and join (3 to 10 us) eats the gain. */
#define GF_BYTES_PER_THREAD (192 * 1024)
#define GF_ALIGN 256 /* elements: no two threads write one cache line, whatever the dtype */

typedef struct {
    const gf_loop *loop;
    int inputs;               /* 1: x; 2: dy, x */
    char *in[2], *out;
    intptr_t in_step[2], out_step;
} gf_job;

static const int sizes[GF_DTYPES] = {2, 2, 4, 8};

#define GF_CHUNK 512

#define GF_COPY(type)                                                                                               \
    for (intptr_t i = 0; i < n; i++) *(type *)(to + i * to_step) = *(const type *)(from + i * from_step)

static void copy_strided(char *to, intptr_t to_step, const char *from, intptr_t from_step, intptr_t n, int size)
{
    if (size == 2) GF_COPY(uint16_t);
    else if (size == 4) GF_COPY(uint32_t);
    else GF_COPY(uint64_t);
}

static void run_contiguous(const gf_job *job, char *const *in, char *out, intptr_t n)
{
    int dtype = job->loop->dtype, function = job->loop->function;
    if (job->inputs == 1) kernels->unary[dtype][function](in[0], out, n);
    else kernels->product[dtype][function / GF_ORDERS](in[0], in[1], out, n);
}

static void run_range(const gf_job *job, intptr_t begin, intptr_t end)
{
    int size = sizes[job->loop->dtype], direct = job->out_step == size;
    char *in[2], *out = job->out + begin * job->out_step;
    gf_env saved = env_enter();
    for (int k = 0; k < job->inputs; k++) {
        in[k] = job->in[k] + begin * job->in_step[k];
        direct &= job->in_step[k] == size;
    }
    if (direct) {
        run_contiguous(job, in, out, end - begin);
    } else {
        uint64_t buffer[2][GF_CHUNK];
        char *packed[2] = {(char *)buffer[0], (char *)buffer[1]};
        for (intptr_t left = end - begin, n; left > 0; left -= n) {
            n = left < GF_CHUNK ? left : GF_CHUNK;
            for (int k = 0; k < job->inputs; k++) {
                copy_strided(packed[k], size, in[k], job->in_step[k], n, size);
                in[k] += n * job->in_step[k];
            }
            run_contiguous(job, packed, packed[0], n);
            copy_strided(out, job->out_step, packed[0], size, n, size);
            out += n * job->out_step;
        }
    }
    env_leave(saved);
}

static void run(const gf_job *job, intptr_t n)
{
#ifdef _OPENMP
    intptr_t worth = n * sizes[job->loop->dtype] / GF_BYTES_PER_THREAD;
    if (worth > 1) {
        int count = gf_usable_threads();
        if (worth < count) count = (int)worth;
        if (count > 1) {
#pragma omp parallel num_threads(count)
            {
                intptr_t team = omp_get_num_threads(), me = omp_get_thread_num();
                intptr_t share = (n / team + GF_ALIGN) / GF_ALIGN * GF_ALIGN;
                intptr_t begin = me * share, end = begin + share;
                if (end > n) end = n;
                if (begin < end) run_range(job, begin, end);
            }
            return;
        }
    }
#endif
    run_range(job, 0, n);
}

/* -- NumPy's loops ------------------------------------------------------------------------------------------------ */

gf_loop gf_loops[GF_FUNCTIONS][GF_DTYPES] = {
#define GF_LOOP_ROW(f) {{f, GF_F16}, {f, GF_BF16}, {f, GF_F32}, {f, GF_F64}}
    GF_LOOP_ROW(0), GF_LOOP_ROW(1), GF_LOOP_ROW(2), GF_LOOP_ROW(3), GF_LOOP_ROW(4),
    GF_LOOP_ROW(5), GF_LOOP_ROW(6), GF_LOOP_ROW(7), GF_LOOP_ROW(8),
};

void gf_unary_loop(char **args, const intptr_t *dims, const intptr_t *steps, void *data)
{
    gf_job job = {data, 1, {args[0], NULL}, args[1], {steps[0], 0}, steps[1]};
    run(&job, dims[0]);
}

void gf_product_loop(char **args, const intptr_t *dims, const intptr_t *steps, void *data)
{
    gf_job job = {data, 2, {args[0], args[1]}, args[2], {steps[0], steps[1]}, steps[2]};
    run(&job, dims[0]);
}
