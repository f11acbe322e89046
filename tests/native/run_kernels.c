/* Runs kernels outside Python, so that a build for another architecture can be tested under an emulator.
 *
 *     run_kernels ISA KIND FUNCTION DTYPE N < input > output
 *
 * KIND is unary, product or with_grad; input: N numbers of x, or of dy then x; output: N numbers, twice for with_grad.
 * KIND sum, sum_backward, gate or gate_backward: FUNCTION is the form; input: N numbers each of the three operands (the
 * third is not looked at in a forward kind); output: N numbers, in a backward kind another N (of double for the sums).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch.h"
#include "rows.h"

static int run_fused(int kind, int form, int dtype, intptr_t n, intptr_t size)
{
    gf_rows job = {.kind = kind, .dtype = dtype, .function = form, .n = n};
    int backward = kind == GF_SUM_BACKWARD || kind == GF_GATE_BACKWARD;
    char *in = malloc((size_t)(n * size) * 3), *out = malloc((size_t)n * 16);
    if (in == NULL || out == NULL || fread(in, 1, (size_t)(n * size) * 3, stdin) != (size_t)(n * size) * 3) return 3;
    job.inputs = backward ? 3 : 2;
    job.outputs = kind == GF_GATE_BACKWARD ? 2 : 1;
    for (int k = 0; k < 5; k++) job.step[k] = size;
    for (int k = 0; k < job.inputs; k++) job.at[k] = in + k * n * size;
    for (int k = 0; k < job.outputs; k++) job.at[job.inputs + k] = out + k * n * size;
    if (kind == GF_SUM_BACKWARD) job.sums = malloc((size_t)n * sizeof *job.sums);
    if (gf_rows_run(&job)) return 3;
    fwrite(out, 1, (size_t)(n * size) * (size_t)job.outputs, stdout);
    if (job.sums) fwrite(job.sums, sizeof *job.sums, (size_t)n, stdout);
    return 0;
}

int main(int argc, char **argv)
{
    static const int sizes[GF_DTYPES] = {2, 2, 4, 8};
    static const char *const fused[GF_FUSED] = {"sum", "sum_backward", "gate", "gate_backward"};
    if (argc != 6 || gf_select(argv[1]) != 0) return 2;
    gf_init();
    for (int k = 0; k < GF_FUSED; k++)
        if (!strcmp(argv[2], fused[k])) return run_fused(k, atoi(argv[3]), atoi(argv[4]), atol(argv[5]), sizes[atoi(argv[4])]);
    int function = atoi(argv[3]), dtype = atoi(argv[4]), product = !strcmp(argv[2], "product");
    int both = !strcmp(argv[2], "with_grad"), size = sizes[dtype];
    intptr_t n = atol(argv[5]), steps[3] = {size, size, size};
    char *in = malloc((size_t)(n * size) * 2), *out = malloc((size_t)(n * size) * 2);
    size_t want = (size_t)(n * size) * (product ? 2 : 1);
    if (in == NULL || out == NULL || fread(in, 1, want, stdin) != want) return 3;
    if (product) {
        char *args[3] = {in, in + n * size, out};
        gf_product_loop(args, &n, steps, &gf_loops[function][dtype]);
    } else if (both) {
        char *args[3] = {in, out, out + n * size};
        gf_with_grad_loop(args, &n, steps, &gf_loops[function][dtype]);
    } else {
        char *args[2] = {in, out};
        gf_unary_loop(args, &n, steps, &gf_loops[function][dtype]);
    }
    size_t made = (size_t)(n * size) * (both ? 2 : 1);
    return fwrite(out, 1, made, stdout) == made ? 0 : 4;
}
