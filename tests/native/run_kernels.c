/* Runs kernels outside Python, so that a build for another architecture can be tested under an emulator.
 *
 *     run_kernels ISA KIND FUNCTION DTYPE N < input > output
 *
 * KIND is unary, product or with_grad; input: N numbers of x, or of dy then x; output: N numbers, twice for with_grad.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch.h"

int main(int argc, char **argv)
{
    static const int sizes[GF_DTYPES] = {2, 2, 4, 8};
    if (argc != 6 || gf_select(argv[1]) != 0) return 2;
    gf_init();
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
