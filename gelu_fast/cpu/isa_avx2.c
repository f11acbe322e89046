#include "dispatch.h"
#ifdef GF_HAVE_X86
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include "vec_avx2.h"
#define GF_KERNELS gf_avx2
#define GF_ISA_NAME "avx2"
#include "kernels.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
