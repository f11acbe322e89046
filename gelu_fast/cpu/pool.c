/* Why not OpenMP's own team: the caller must wait for each of its threads to arrive, and they spin between calls. With
 * another busy process on two CPUs that made a call of 0.04 ms take 8, and two Python threads at once ran at half the
 * speed of one after the other. Here threads fetch pieces of work; one that comes late finds none and nobody waits for
 * it; an idle one spins for some microseconds and sleeps.
 *
 * One job at a time: a caller that finds the pool at work does its own by itself.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "pool.h"

#ifdef GF_HAVE_POOL

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HELPERS = 255, CLOSED = 1 << 30, SPIN_NS = 30000 };

static struct {
    gf_work work;
    const void *job;
    intptr_t n, piece;
    intptr_t next;  /* where the next piece begins */
    int tickets;    /* helpers still wanted */
    int inside;     /* helpers at this job, and CLOSED where there is none */
    int generation; /* of jobs; sleeping helpers wait for it to change */
    int sleeping;
    int helpers;    /* started so far */
    int at_work;    /* a caller has the pool */
} pool = {.inside = CLOSED};

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Returns when *at is no longer `value`, or for no reason. */
static void wait_while(int *at, int value, int *sleeping)
{
    int64_t until = now_ns() + SPIN_NS;
    while (now_ns() < until) {
        for (int i = 0; i < 32; i++) {
            if (__atomic_load_n(at, __ATOMIC_ACQUIRE) != value) return;
            pause_cpu();
        }
    }
    if (sleeping) __atomic_fetch_add(sleeping, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    if (sleeping) __atomic_fetch_sub(sleeping, 1, __ATOMIC_SEQ_CST);
}

static void wake(int *at, int count) { syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0); }

static void do_pieces(gf_work work, const void *job, intptr_t n, intptr_t piece)
{
    for (;;) {
        intptr_t begin = __atomic_fetch_add(&pool.next, piece, __ATOMIC_RELAXED);
        if (begin >= n) return;
        work(job, begin, n - begin < piece ? n : begin + piece);
    }
}

static void *helper(void *unused)
{
    int seen = __atomic_load_n(&pool.generation, __ATOMIC_ACQUIRE) - 1; /* look once before the first sleep */
    (void)unused;
    for (;;) {
        int generation = __atomic_load_n(&pool.generation, __ATOMIC_ACQUIRE);
        if (generation == seen) {
            wait_while(&pool.generation, seen, &pool.sleeping);
            continue;
        }
        seen = generation;
        /* Only one inside may read the job: the caller closes it and waits for those inside before it goes. */
        if (!(__atomic_fetch_add(&pool.inside, 1, __ATOMIC_ACQ_REL) & CLOSED) &&
            __atomic_fetch_sub(&pool.tickets, 1, __ATOMIC_RELAXED) > 0)
            do_pieces(pool.work, pool.job, pool.n, pool.piece);
        if (__atomic_sub_fetch(&pool.inside, 1, __ATOMIC_ACQ_REL) == CLOSED) wake(&pool.inside, 1);
    }
    return NULL;
}

/* As many helpers as wanted, if the system gives them; Python's signals are for Python's threads. */
static void start_helpers(int wanted)
{
    sigset_t all, old;
    pthread_attr_t attributes;
    if (wanted > MAX_HELPERS) wanted = MAX_HELPERS;
    if (pool.helpers >= wanted || pthread_attr_init(&attributes)) return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (pthread_t thread; pool.helpers < wanted; pool.helpers++)
        if (pthread_create(&thread, &attributes, helper, NULL)) break;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
}

void gf_pool_run(gf_work work, const void *job, intptr_t n, intptr_t piece, int count)
{
    if (count < 2 || n <= piece || __atomic_exchange_n(&pool.at_work, 1, __ATOMIC_ACQUIRE)) {
        work(job, 0, n);
        return;
    }
    start_helpers(count - 1);
    pool.work = work, pool.job = job, pool.n = n, pool.piece = piece;
    __atomic_store_n(&pool.next, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&pool.tickets, count - 1, __ATOMIC_RELAXED);
    __atomic_fetch_and(&pool.inside, ~CLOSED, __ATOMIC_RELEASE);
    __atomic_fetch_add(&pool.generation, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool.sleeping, __ATOMIC_SEQ_CST)) wake(&pool.generation, count - 1);
    do_pieces(work, job, n, piece);
    __atomic_fetch_or(&pool.inside, CLOSED, __ATOMIC_ACQ_REL);
    for (int inside; (inside = __atomic_load_n(&pool.inside, __ATOMIC_ACQUIRE)) != CLOSED;)
        wait_while(&pool.inside, inside, NULL);
    __atomic_store_n(&pool.at_work, 0, __ATOMIC_RELEASE);
}

void gf_pool_after_fork(void)
{
    pool.inside = CLOSED;
    pool.helpers = pool.sleeping = pool.at_work = 0;
}

#else

void gf_pool_run(gf_work work, const void *job, intptr_t n, intptr_t piece, int count)
{
    (void)piece, (void)count;
    work(job, 0, n);
}

void gf_pool_after_fork(void) {}

#endif
