#include "dispatch.h"
#ifdef GF_HAVE_NEON
#include "vec_neon.h"
#define GF_KERNELS gf_neon
#define GF_ISA_NAME "neon"
#include "kernels.h"
#endif
