#include "dispatch.h"
#include "vec_baseline.h"
#define GF_KERNELS gf_baseline
#define GF_ISA_NAME "baseline"
#include "kernels.h"
