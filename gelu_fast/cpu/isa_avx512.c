#include "dispatch.h"
#ifdef GF_HAVE_X86
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")
#endif
#include "vec_avx512.h"
#define GF_KERNELS gf_avx512
#define GF_ISA_NAME "avx512"
#include "kernels.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
