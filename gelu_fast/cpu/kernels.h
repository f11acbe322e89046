/* All kernels of one ISA and the table of them; included once by each isa_*.c, which names the table. */
#include "loops.h"

#include "fused_loops.h"

#define GF_ROW(way)                                                                                                 \
    {none0_##way, none1_##way, none2_##way, tanh0_##way, tanh1_##way, tanh2_##way, quick0_##way, quick1_##way,      \
     quick2_##way}
#define GF_PRODUCT_ROW(way) {none1_##way, tanh1_##way, quick1_##way}

#define GF_FUSED_FORMS(kind, type) {none_##kind##_##type, tanh_##kind##_##type, quick_##kind##_##type}
#define GF_FUSED_TYPES(kind)                                                                                        \
    {GF_FUSED_FORMS(kind, f16), GF_FUSED_FORMS(kind, bf16), GF_FUSED_FORMS(kind, f32), GF_FUSED_FORMS(kind, f64)}

const gf_kernels GF_KERNELS = {
    GF_ISA_NAME,
    {GF_ROW(loop_f16), GF_ROW(loop_bf16), GF_ROW(loop_f32), GF_ROW(loop_f64)},
    {GF_PRODUCT_ROW(product_f16), GF_PRODUCT_ROW(product_bf16), GF_PRODUCT_ROW(product_f32), GF_PRODUCT_ROW(product_f64)},
#ifdef GF_STREAM_END
    {{0}, {0}, GF_ROW(stream_f32), GF_ROW(stream_f64)},
    {{0}, {0}, GF_PRODUCT_ROW(product_stream_f32), GF_PRODUCT_ROW(product_stream_f64)},
#else
    {{0}},
    {{0}},
#endif
    {GF_FUSED_TYPES(sum), GF_FUSED_TYPES(sum_backward), GF_FUSED_TYPES(gate), GF_FUSED_TYPES(gate_backward)},
};
