/* A pool of threads that sleep. */
#ifndef GF_POOL_H
#define GF_POOL_H

#include <stdint.h>

#ifdef __linux__ /* futex */
#define GF_HAVE_POOL 1
#endif

/* Work on [begin, end). */
typedef void (*gf_work)(const void *job, intptr_t begin, intptr_t end);

/* Has [0, n) done, in pieces of `piece`, by at most `count` threads, the caller among them; returns when all is done. */
void gf_pool_run(gf_work work, const void *job, intptr_t n, intptr_t piece, int count);

/* In a forked child: the parent's threads are gone. */
void gf_pool_after_fork(void);

#endif
