/* Functions over the rows of arrays: the last axis apart from the others. */
#ifndef GF_ROWS_H
#define GF_ROWS_H

#include "dispatch.h"

enum { GF_UNARY = GF_FUSED, GF_PRODUCT }; /* kinds besides those of fused_loops.h */

typedef struct {
    int kind, dtype, function;  /* function: the form, or form*3 + order for GF_UNARY and GF_PRODUCT */
    int inputs, outputs, ndim;  /* ndim: of the leading axes */
    intptr_t n;                 /* elements of a row */
    const intptr_t *shape;      /* leading axes */
    char *at[5];                /* inputs, then outputs */
    const intptr_t *stride[5];  /* bytes, of the leading axes */
    intptr_t step[5];           /* bytes, of the last axis */
    double *sums;               /* n column sums, for GF_SUM_BACKWARD alone, which has one output besides */
} gf_rows;

/* 0, or -1 where there is no memory for the sums (then nothing is written). */
int gf_rows_run(const gf_rows *rows);

#endif
