/* Fused forms over contiguous vectors, for one ISA; included by kernels.h.
 *
 *     sum             y = f(x + bias)             in x, bias          out y
 *     sum_backward    dx = dy * f'(x + bias)      in x, bias, dy      out dx, and acc += dx in the type of computation
 *     gate            y = value * f(gate)         in gate, value      out y
 *     gate_backward   dgate = dy*value * f'(gate) in gate, value, dy  out dgate, dvalue = dy * f(gate)
 *
 * The bits are those of the steps one after the other, each rounded to the type of computation. */

/* out[1] has type Z, and is an input too. A remainder goes through the same code in padded buffers. */
#define GF_DEFINE_FUSED(fname, T, Z, step, inputs, outputs, body)                                                   \
    static void fname(const void *const *in, void *const *out, intptr_t n)                                          \
    {                                                                                                               \
        const T *a = in[0], *b = in[1], *c = inputs > 2 ? in[2] : in[0];                                            \
        T *y = out[0];                                                                                              \
        Z *z = outputs > 1 ? out[1] : NULL;                                                                         \
        intptr_t i = 0;                                                                                             \
        for (; i + step <= n; i += step) body;                                                                      \
        if (i < n) {                                                                                                \
            size_t part = (size_t)(n - i);                                                                          \
            T rest[4][step] = {{0}};                                                                                \
            Z rest_z[step] = {0};                                                                                   \
            const void *const in_rest[] = {rest[0], rest[1], rest[2]};                                              \
            void *const out_rest[] = {rest[3], rest_z};                                                             \
            memcpy(rest[0], a + i, part * sizeof(T));                                                               \
            memcpy(rest[1], b + i, part * sizeof(T));                                                               \
            memcpy(rest[2], c + i, part * sizeof(T));                                                               \
            if (outputs > 1) memcpy(rest_z, z + i, part * sizeof(Z));                                               \
            fname(in_rest, out_rest, step);                                                                         \
            memcpy(y + i, rest[3], part * sizeof(T));                                                               \
            if (outputs > 1) memcpy(z + i, rest_z, part * sizeof(Z));                                               \
        }                                                                                                           \
    }

#define GF_SUM_STEP(V, form, type)                                                                                  \
    {                                                                                                               \
        V x0, x1, b0, b1, y0, y1;                                                                                   \
        V##_load2_##type(a + i, &x0, &x1);                                                                          \
        V##_load2_##type(b + i, &b0, &b1);                                                                          \
        V##_##form##0_pair(V##_rounded(V##_add(x0, b0)), V##_rounded(V##_add(x1, b1)), &y0, &y1);                   \
        V##_store2_##type(y + i, y0, y1);                                                                           \
    }
#define GF_SUM_BACKWARD_STEP(V, form, type)                                                                         \
    {                                                                                                               \
        V x0, x1, b0, b1, d0, d1, y0, y1;                                                                           \
        V##_load2_##type(a + i, &x0, &x1);                                                                          \
        V##_load2_##type(b + i, &b0, &b1);                                                                          \
        V##_load2_##type(c + i, &d0, &d1);                                                                          \
        V##_##form##1_pair(V##_rounded(V##_add(x0, b0)), V##_rounded(V##_add(x1, b1)), &y0, &y1);                   \
        y0 = V##_rounded(V##_mul(d0, V##_rounded(y0)));                                                             \
        y1 = V##_rounded(V##_mul(d1, V##_rounded(y1)));                                                             \
        V##_store2_##type(y + i, y0, y1);                                                                           \
        V##_add2_##type(z + i, y0, y1);                                                                             \
    }
#define GF_GATE_STEP(V, form, type)                                                                                 \
    {                                                                                                               \
        V x0, x1, v0, v1, y0, y1;                                                                                   \
        V##_load2_##type(a + i, &x0, &x1);                                                                          \
        V##_load2_##type(b + i, &v0, &v1);                                                                          \
        V##_##form##0_pair(x0, x1, &y0, &y1);                                                                       \
        V##_store2_##type(y + i, V##_mul(v0, V##_rounded(y0)), V##_mul(v1, V##_rounded(y1)));                       \
    }
#define GF_GATE_BACKWARD_STEP(V, form, type)                                                                        \
    {                                                                                                               \
        V x0, x1, v0, v1, d0, d1, f0, f1, g0, g1;                                                                   \
        V##_load2_##type(a + i, &x0, &x1);                                                                          \
        V##_load2_##type(b + i, &v0, &v1);                                                                          \
        V##_load2_##type(c + i, &d0, &d1);                                                                          \
        V##_##form##0_pair(x0, x1, &f0, &f1);                                                                       \
        V##_##form##1_pair(x0, x1, &g0, &g1);                                                                       \
        v0 = V##_rounded(V##_mul(d0, v0));                                                                          \
        v1 = V##_rounded(V##_mul(d1, v1));                                                                          \
        V##_store2_##type(y + i, V##_mul(v0, V##_rounded(g0)), V##_mul(v1, V##_rounded(g1)));                       \
        V##_store2_##type(z + i, V##_mul(d0, V##_rounded(f0)), V##_mul(d1, V##_rounded(f1)));                       \
    }

/* acc += the pair, in the order of the elements. */
#define GF_DEFINE_ADD2(V, type, Z, base, lanes)                                                                     \
    GF_INLINE void V##_add2_##type(Z *acc, V a, V b)                                                                \
    {                                                                                                               \
        V##_store_##base(acc, V##_add(V##_load_##base(acc), a));                                                    \
        V##_store_##base(acc + lanes, V##_add(V##_load_##base(acc + lanes), b));                                    \
    }
GF_DEFINE_ADD2(vf, f32, float, f32, VF_LANES)
GF_DEFINE_ADD2(vf, f16, float, f32, VF_LANES)
GF_DEFINE_ADD2(vd, f64, double, f64, VD_LANES)
GF_INLINE void vf_add2_bf16(float *acc, vf even, vf odd)
{
    vf a, b;
    vf_interleave(even, odd, &a, &b);
    vf_add2_f32(acc, a, b);
}

#define GF_DEFINE_FUSED_KINDS(V, form, type, T, Z, step)                                                            \
    GF_DEFINE_FUSED(form##_sum_##type, T, T, step, 2, 1, GF_SUM_STEP(V, form, type))                                \
    GF_DEFINE_FUSED(form##_sum_backward_##type, T, Z, step, 3, 2, GF_SUM_BACKWARD_STEP(V, form, type))              \
    GF_DEFINE_FUSED(form##_gate_##type, T, T, step, 2, 1, GF_GATE_STEP(V, form, type))                              \
    GF_DEFINE_FUSED(form##_gate_backward_##type, T, T, step, 3, 2, GF_GATE_BACKWARD_STEP(V, form, type))
#define GF_DEFINE_FUSED_TYPES(form)                                                                                 \
    GF_DEFINE_FUSED_KINDS(vf, form, f16, uint16_t, float, 2 * VF_LANES)                                             \
    GF_DEFINE_FUSED_KINDS(vf, form, bf16, uint16_t, float, 2 * VF_LANES)                                            \
    GF_DEFINE_FUSED_KINDS(vf, form, f32, float, float, 2 * VF_LANES)                                                \
    GF_DEFINE_FUSED_KINDS(vd, form, f64, double, double, 2 * VD_LANES)
GF_DEFINE_FUSED_TYPES(none) GF_DEFINE_FUSED_TYPES(tanh) GF_DEFINE_FUSED_TYPES(quick)
