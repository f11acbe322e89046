/* What the ISA files offer and what the Cython layer calls. */
#ifndef GF_DISPATCH_H
#define GF_DISPATCH_H

#include <stdint.h>

#ifdef _MSC_VER
#error "gelu_fast builds with GCC or Clang; on Windows use MinGW-w64 or clang"
#endif

enum { GF_F16, GF_BF16, GF_F32, GF_F64, GF_DTYPES };
enum { GF_FORMS = 3, GF_ORDERS = 3, GF_FUNCTIONS = 9 }; /* function = form*3 + order */

/* y[i] = f(x[i]), and out[i] = dy[i] * f(x[i]); contiguous, one thread; y may be x or dy. */
typedef void (*gf_unary)(const void *x, void *y, intptr_t n);
typedef void (*gf_product)(const void *dy, const void *x, void *out, intptr_t n);
/* See fused_loops.h. */
enum { GF_SUM, GF_SUM_BACKWARD, GF_GATE, GF_GATE_BACKWARD, GF_FUSED };
typedef void (*gf_fused)(const void *const *in, void *const *out, intptr_t n);

typedef struct {
    const char *name;
    gf_unary unary[GF_DTYPES][GF_FUNCTIONS];
    gf_product product[GF_DTYPES][GF_FORMS]; /* dy * first derivative */
    /* The same, storing past the caches: y is aligned as its dtype and apart from the inputs. NULL: there is none. */
    gf_unary unary_stream[GF_DTYPES][GF_FUNCTIONS];
    gf_product product_stream[GF_DTYPES][GF_FORMS];
    gf_fused fused[GF_FUSED][GF_DTYPES][GF_FORMS];
} gf_kernels;

extern const gf_kernels gf_baseline;
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define GF_HAVE_X86 1
extern const gf_kernels gf_avx2, gf_avx512;
#elif defined(__aarch64__)
#define GF_HAVE_NEON 1
extern const gf_kernels gf_neon;
#endif

/* A loop of a NumPy ufunc: which function, on what. */
typedef struct {
    int function, dtype;
} gf_loop;

extern gf_loop gf_loops[GF_FUNCTIONS][GF_DTYPES];

/* PyUFuncGenericFunction, for x -> f(x), (dy, x) -> dy*f'(x) and x -> f(x), f'(x). data is a gf_loop, whose function is
 * f, f' and f. They call neither Python nor NumPy. */
void gf_unary_loop(char **args, const intptr_t *dims, const intptr_t *steps, void *data);
void gf_product_loop(char **args, const intptr_t *dims, const intptr_t *steps, void *data);
void gf_with_grad_loop(char **args, const intptr_t *dims, const intptr_t *steps, void *data);

/* The names this CPU can run, best first, NULL at the end. */
const char *const *gf_available(void);
/* Chooses by name, or the best for NULL; 0, or -1 where the name is not available. */
int gf_select(const char *name);
const char *gf_selected(void);
const gf_kernels *gf_current(void);

int gf_get_threads(void); /* as set */
void gf_set_threads(int n);
int gf_usable_threads(void); /* what a large call would use here and now */
int gf_cpu_count(void);
const char *gf_kernels_sha256(void); /* of the sources of the arithmetic, as setup.py says */
int gf_has_openmp(void); /* without it, of OpenMP's limits only OMP_NUM_THREADS is obeyed, as it was in gf_init */
void gf_init(void);

#endif
