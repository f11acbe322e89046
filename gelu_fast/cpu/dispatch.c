/* Chooses the ISA once, splits work over threads, and walks NumPy's strides. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "dispatch.h"
#include "common.h"
#include "pool.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#ifdef GF_HAVE_POOL
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

/* -- which ISA ---------------------------------------------------------------------------------------------------- */

/* Whatever is static here is read by many threads at once, with a GIL or none: what may change is atomic. */
static const gf_kernels *kernels = &gf_baseline;
static const char *names[5]; /* filled in gf_init */

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
    if (names[0]) return names;
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
            __atomic_store_n(&kernels, by_name(name), __ATOMIC_RELAXED);
            return 0;
        }
    }
    return -1;
}

const gf_kernels *gf_current(void) { return __atomic_load_n(&kernels, __ATOMIC_RELAXED); }
const char *gf_selected(void) { return gf_current()->name; }

/* -- threads ------------------------------------------------------------------------------------------------------ */

static int threads = 1;

int gf_get_threads(void) { return __atomic_load_n(&threads, __ATOMIC_RELAXED); }
void gf_set_threads(int n) { __atomic_store_n(&threads, n < 1 ? 1 : n, __ATOMIC_RELAXED); }

#ifdef _OPENMP
int gf_has_openmp(void) { return 1; }
#else
int gf_has_openmp(void) { return 0; }
#endif

#ifdef GF_HAVE_POOL
static int forked = 0;
#ifdef _OPENMP
static int openmp_limit(void) { return omp_in_parallel() ? 1 : omp_get_max_threads(); }
#else /* nobody to ask but the environment, once */
static int limit = INT_MAX;
static int openmp_limit(void) { return limit; }
#endif

/* Threads do not survive a fork, and a child of a process with threads had better not start new ones: it stays on one. */
static void after_fork(void)
{
    forked = 1;
    gf_pool_after_fork();
}

int gf_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long found = sysconf(_SC_NPROCESSORS_ONLN); /* more CPUs than the set holds */
    return found > 0 ? (int)found : 1;
}

int gf_usable_threads(void)
{
    int limit = forked ? 1 : openmp_limit(), wanted = gf_get_threads();
    return wanted < limit ? wanted : limit;
}
#else
int gf_cpu_count(void) { return 1; }
int gf_usable_threads(void) { return 1; }
#endif

static int initialised = 0;
/* A result of this many bytes is stored past the caches: it would push out everything else and itself. On two CPUs
 * of a Zen 4 machine 64 MB of float32 took 3.7 ms so and 5.5 through the caches (memcpy: 6.2); on one thread 32 MB gained
 * 11 % and 8 MB lost 12 %. The number is fixed: what the system says of the last cache is wrong in virtual machines
 * (there, 320 MB for 32). */
#define GF_STREAM_FROM (32 << 20)

#define TEXT_OF(macro) #macro
#define TEXT(macro) TEXT_OF(macro)
const char *gf_kernels_sha256(void) { return TEXT(GF_KERNELS_SHA256); }

void gf_init(void)
{
    if (initialised) return;
    initialised = 1;
    gf_available();
    gf_set_threads(gf_cpu_count());
#ifdef GF_HAVE_POOL
    pthread_atfork(NULL, NULL, after_fork);
#ifndef _OPENMP
    const char *set = getenv("OMP_NUM_THREADS"); /* "4" or "4,2" */
    long n = set ? strtol(set, NULL, 10) : 0;
    if (n > 0 && n < INT_MAX) limit = (int)n;
#endif
#endif
}

enum { UNARY, PRODUCT, WITH_GRAD }; /* x -> f; (dy, x) -> dy*f'; x -> (f, f') */

typedef struct {
    const gf_loop *loop;
    int kind, inputs, operands; /* operands: inputs, then outputs */
    char *at[3];
    intptr_t step[3];
    int stream;
} gf_job;

/* Contiguous operands. */
static void run_packed(const gf_job *job, char *const *at, intptr_t n)
{
    const gf_kernels *const kernels = gf_current();
    int dtype = job->loop->dtype, function = job->loop->function, size = gf_sizes[dtype];
    if (job->kind == UNARY) {
        gf_unary stream = job->stream ? kernels->unary_stream[dtype][function] : NULL;
        (stream ? stream : kernels->unary[dtype][function])(at[0], at[1], n);
    } else if (job->kind == PRODUCT) {
        gf_product stream = job->stream ? kernels->product_stream[dtype][function / GF_ORDERS] : NULL;
        (stream ? stream : kernels->product[dtype][function / GF_ORDERS])(at[0], at[1], at[2], n);
    } else { /* block by block, while x is in the first-level cache; f' first, as f may overwrite x */
        for (intptr_t done = 0, m; done < n; done += m) {
            char block[GF_CHUNK * 8];
            m = n - done < GF_CHUNK ? n - done : GF_CHUNK;
            memcpy(block, at[0] + done * size, (size_t)(m * size));
            kernels->unary[dtype][function + 1](block, at[2] + done * size, m);
            kernels->unary[dtype][function](block, at[1] + done * size, m);
        }
    }
}

static void run_range(const void *a_job, intptr_t begin, intptr_t end)
{
    const gf_job *job = a_job;
    int size = gf_sizes[job->loop->dtype], packed = 1;
    char *at[3];
    gf_env saved = env_enter();
    for (int k = 0; k < job->operands; k++) {
        at[k] = job->at[k] + begin * job->step[k];
        packed &= job->step[k] == size;
    }
    if (packed) {
        run_packed(job, at, end - begin);
    } else {
        uint64_t buffer[3][GF_CHUNK];
        char *copy[3] = {(char *)buffer[0], (char *)buffer[1], (char *)buffer[2]};
        for (intptr_t left = end - begin, n; left > 0; left -= n) {
            n = left < GF_CHUNK ? left : GF_CHUNK;
            for (int k = 0; k < job->inputs; k++) copy_strided(copy[k], size, at[k], job->step[k], n, size);
            run_packed(job, copy, n);
            for (int k = job->inputs; k < job->operands; k++)
                copy_strided(at[k], job->step[k], copy[k], size, n, size);
            for (int k = 0; k < job->operands; k++) at[k] += n * job->step[k];
        }
    }
    env_leave(saved);
}

/* Whether an input lies over an output, but not element on element. NumPy lets such a call through where elements are
 * read before they are written when taken in order: so they must be. */
static int shifted(const gf_job *job, intptr_t n)
{
    for (int k = 0; k < job->inputs; k++) {
        for (int out = job->inputs; out < job->operands; out++) {
            intptr_t a = (intptr_t)job->at[k], a_end = a + (n - 1) * job->step[k];
            intptr_t b = (intptr_t)job->at[out], b_end = b + (n - 1) * job->step[out], swap;
            if (a == b && job->step[k] == job->step[out]) continue;
            if (a > a_end) swap = a, a = a_end, a_end = swap;
            if (b > b_end) swap = b, b = b_end, b_end = swap;
            if (a < b_end + 8 && b < a_end + 8) return 1;
        }
    }
    return 0;
}

/* Whether each element needs the one before it: NumPy's reduce (the output stands still on the first input) and
 * accumulate (the first input is the output, one element behind). No other call comes so: it copies first. */
static int is_fold(const gf_job *job)
{
    const intptr_t step = job->step[job->operands - 1];
    const char *out = job->at[job->operands - 1];
    return job->kind == PRODUCT && job->step[0] == step && out == job->at[0] + step;
}

static void run(gf_job *job, intptr_t n)
{
    if (is_fold(job)) {
        for (intptr_t i = 0; i < n; i++) run_range(job, i, i + 1);
        return;
    }
    const intptr_t size = gf_sizes[job->loop->dtype];
    const char *out = job->at[job->inputs];
    if (n * size < 2 * GF_BYTES_PER_THREAD || shifted(job, n)) {
        run_range(job, 0, n);
        return;
    }
    job->stream = n * size >= GF_STREAM_FROM && (uintptr_t)out % (uintptr_t)size == 0;
    for (int k = 0; k < job->operands; k++) job->stream &= job->step[k] == size;
    for (int k = 0; k < job->inputs; k++) job->stream &= out != job->at[k];
    intptr_t count, piece = gf_piece(n / GF_ALIGN, size * GF_ALIGN, &count) * GF_ALIGN;
    gf_pool_run(run_range, job, n, piece, (int)count);
}

/* -- NumPy's loops ------------------------------------------------------------------------------------------------ */

gf_loop gf_loops[GF_FUNCTIONS][GF_DTYPES] = {
#define GF_LOOP_ROW(f) {{f, GF_F16}, {f, GF_BF16}, {f, GF_F32}, {f, GF_F64}}
    GF_LOOP_ROW(0), GF_LOOP_ROW(1), GF_LOOP_ROW(2), GF_LOOP_ROW(3), GF_LOOP_ROW(4),
    GF_LOOP_ROW(5), GF_LOOP_ROW(6), GF_LOOP_ROW(7), GF_LOOP_ROW(8),
};

static void run_loop(int kind, int inputs, int operands, char **args, intptr_t n, const intptr_t *steps, void *data)
{
    gf_job job = {data, kind, inputs, operands, {0}, {0}, 0};
    memcpy(job.at, args, (size_t)operands * sizeof *args);
    memcpy(job.step, steps, (size_t)operands * sizeof *steps);
    run(&job, n);
}

void gf_unary_loop(char **args, const intptr_t *dims, const intptr_t *steps, void *data)
{
    run_loop(UNARY, 1, 2, args, dims[0], steps, data);
}

void gf_product_loop(char **args, const intptr_t *dims, const intptr_t *steps, void *data)
{
    run_loop(PRODUCT, 2, 3, args, dims[0], steps, data);
}

void gf_with_grad_loop(char **args, const intptr_t *dims, const intptr_t *steps, void *data)
{
    run_loop(WITH_GRAD, 1, 3, args, dims[0], steps, data);
}
