/* Functions over the rows of arrays of any layout, threaded over rows and long rows' parts. */
#include "rows.h"

#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "pool.h"

enum {
    SEGMENT = 2048, /* elements of a row that are done at a time */
    BLOCKS = 64,    /* of rows, each with its own sum: a fixed number, so that the bits don't depend on the threads */
    WIDE = 65536,   /* columns from which there are fewer */
    GROUP = 8       /* rows summed in the type of computation before they go to double: an error below 2^-21 */
};

typedef struct {
    const gf_rows *rows;
    intptr_t count, segments; /* rows in all; parts of each */
    intptr_t block;           /* rows in a block */
    double *sums;             /* of each block */
} job_t;

static intptr_t offset(const gf_rows *job, int operand, intptr_t row)
{
    intptr_t at = 0;
    for (int k = job->ndim - 1; k >= 0; k--) {
        at += row % job->shape[k] * job->stride[operand][k];
        row /= job->shape[k];
    }
    return at;
}

static void call(const gf_rows *job, char *const *at, intptr_t n)
{
    const gf_kernels *kernels = gf_current();
    if (job->kind == GF_UNARY) {
        kernels->unary[job->dtype][job->function](at[0], at[1], n);
    } else if (job->kind == GF_PRODUCT) {
        kernels->product[job->dtype][job->function / GF_ORDERS](at[0], at[1], at[2], n);
    } else {
        const void *const in[3] = {at[0], at[1], at[2]};
        void *const out[2] = {at[job->inputs], at[job->inputs + 1]};
        kernels->fused[job->kind][job->dtype][job->function](in, out, n);
    }
}

/* n elements from column `first` of a row; acc: the last output where it is no array but sums. */
static void part(const gf_rows *job, intptr_t row, intptr_t first, intptr_t n, char *acc)
{
    const int size = gf_sizes[job->dtype], arrays = job->inputs + job->outputs;
    int packed = 1;
    char *at[6] = {0};
    for (int k = 0; k < arrays; k++) {
        at[k] = job->at[k] + offset(job, k, row) + first * job->step[k];
        packed &= job->step[k] == size;
    }
    at[arrays] = acc;
    if (packed) {
        call(job, at, n);
        return;
    }
    uint64_t buffer[5][GF_CHUNK];
    for (intptr_t m; n > 0; n -= m) {
        char *copy[6] = {0};
        m = n < GF_CHUNK ? n : GF_CHUNK;
        for (int k = 0; k < arrays; k++) {
            copy[k] = (char *)buffer[k];
            if (k < job->inputs) copy_strided(copy[k], size, at[k], job->step[k], m, size);
        }
        copy[arrays] = at[arrays];
        call(job, copy, m);
        for (int k = job->inputs; k < arrays; k++) copy_strided(at[k], job->step[k], copy[k], size, m, size);
        for (int k = 0; k < arrays; k++) at[k] += m * job->step[k];
        if (acc) at[arrays] += m * (job->dtype == GF_F64 ? 8 : 4);
    }
}

static void run_parts(const void *a_job, intptr_t begin, intptr_t end)
{
    const job_t *job = a_job;
    gf_env saved = env_enter();
    for (intptr_t unit = begin; unit < end; unit++) {
        intptr_t first = unit % job->segments * SEGMENT, n = job->rows->n - first;
        part(job->rows, unit / job->segments, first, n < SEGMENT ? n : SEGMENT, NULL);
    }
    env_leave(saved);
}

/* Units are (block of rows, segment). Sums of a few rows in the type of computation, those in double. */
static void run_blocks(const void *a_job, intptr_t begin, intptr_t end)
{
    const job_t *job = a_job;
    const int wide = job->rows->dtype == GF_F64;
    gf_env saved = env_enter();
    for (intptr_t unit = begin; unit < end; unit++) {
        intptr_t first = unit % job->segments * SEGMENT, n = job->rows->n - first, block = unit / job->segments;
        intptr_t row = block * job->block, last = row + job->block;
        double *sums = job->sums + block * job->rows->n + first, acc[SEGMENT];
        float *narrow = (float *)acc;
        if (n > SEGMENT) n = SEGMENT;
        if (last > job->count) last = job->count;
        memset(sums, 0, (size_t)n * sizeof *sums);
        while (row < last) {
            memset(acc, 0, (size_t)n * sizeof *acc);
            for (int k = 0; k < GROUP && row < last; k++, row++) part(job->rows, row, first, n, (char *)acc);
            for (intptr_t j = 0; j < n; j++) sums[j] += wide ? acc[j] : (double)narrow[j];
        }
    }
    env_leave(saved);
}

int gf_rows_run(const gf_rows *rows)
{
    job_t job = {rows, 1, (rows->n + SEGMENT - 1) / SEGMENT, 0, NULL};
    intptr_t blocks, threads, piece, bytes = gf_sizes[rows->dtype] * (rows->n < SEGMENT ? rows->n : SEGMENT);
    for (int k = 0; k < rows->ndim; k++) job.count *= rows->shape[k];
    if (rows->kind != GF_SUM_BACKWARD) {
        if (job.count == 0 || rows->n == 0) return 0;
        piece = gf_piece(job.count * job.segments, bytes, &threads);
        gf_pool_run(run_parts, &job, job.count * job.segments, piece, (int)threads);
        return 0;
    }
    memset(rows->sums, 0, (size_t)rows->n * sizeof *rows->sums);
    if (job.count == 0 || rows->n == 0) return 0;
    blocks = rows->n > WIDE ? BLOCKS * WIDE / rows->n + 1 : BLOCKS; /* so many sums fit into memory */
    job.block = (job.count + blocks - 1) / blocks;
    blocks = (job.count + job.block - 1) / job.block;
    job.sums = malloc((size_t)(blocks * rows->n) * sizeof *job.sums);
    if (job.sums == NULL) return -1;
    piece = gf_piece(blocks * job.segments, bytes * job.block, &threads);
    gf_pool_run(run_blocks, &job, blocks * job.segments, piece, (int)threads);
    for (intptr_t b = 0; b < blocks; b++)
        for (intptr_t j = 0; j < rows->n; j++) rows->sums[j] += job.sums[b * rows->n + j];
    free(job.sums);
    return 0;
}
