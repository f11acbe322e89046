"""Every kernel on buffers that end where the array ends: under `make test-asan` one byte too far is an error.

NumPy keeps small allocations for itself and rounds others up, so these arrays lie in memory of ctypes, which is
malloc's where PYTHONMALLOC says so. Without a sanitizer this tests values, and the bytes around an output.
"""

import ctypes

import numpy as np
import pytest
from functions import DTYPES, FORMS, UNARY, same_bits, sample

import gelu_fast as gf

# Around the vectors (2 to 32 elements), unrolled loops, the buffer for strided operands (512) and the block (1,024).
LENGTHS = (*range(1, 70), 127, 129, 255, 257, 511, 512, 513, 1023, 1025, 1537, 2047, 2049)


def exact(values):
    """A copy of a 1-d array in a buffer of its own size (above 16 bytes, that is: up to there ctypes has it inline)."""
    buffer = (ctypes.c_char * values.nbytes)()
    array = np.frombuffer(buffer, values.dtype)
    array[...] = values
    return array


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_elementwise_at_the_end_of_memory(form, dtype, isa):
    x, dy = sample(max(LENGTHS), dtype), sample(max(LENGTHS), dtype, seed=1)
    functions = [f for f, its_form in UNARY if its_form == form]
    whole = [f(x, form) for f in functions]
    product = gf.gelu_backward(dy, x, form)
    for n in LENGTHS:
        part, factor, out = exact(x[-n:]), exact(dy[-n:]), exact(dy[:n])
        for f, expected in zip(functions, whole, strict=True):
            same_bits(f(part, form, out=out), expected[-n:])
        same_bits(gf.gelu_backward(factor, part, form, out=out), product[-n:])
        value, slope = gf.gelu_with_grad(part, form)
        same_bits(value, whole[0][-n:])
        same_bits(slope, whole[1][-n:])
        same_bits(gf.gelu(part[::-1], form, out=out[::-1])[::-1], whole[0][-n:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_fused_at_the_end_of_memory(form, dtype, isa):
    x, dy, bias = (sample(max(LENGTHS), dtype, seed=k) for k in range(3))
    with np.errstate(all="ignore"):
        y = gf.bias_gelu(x, bias, form)
    dx, _ = gf.bias_gelu_backward(dy, x, bias, form)
    for n in LENGTHS:
        part, factor, shift, out = exact(x[-n:]), exact(dy[-n:]), exact(bias[-n:]), exact(dy[:n])
        same_bits(gf.bias_gelu(part, shift, form, out=out), y[-n:])
        same_bits(gf.bias_gelu_backward(factor, part, shift, form)[0], dx[-n:])
        pair = exact(np.concatenate([x[-n:], bias[-n:]]))
        both = np.concatenate([x[-n:], bias[-n:]])
        same_bits(gf.geglu(pair, form, out=out), gf.geglu(both, form))
        same_bits(gf.geglu_backward(factor, pair, form, out=exact(both)), gf.geglu_backward(dy[-n:].copy(), both, form))


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_but_the_output_is_written(dtype, isa):
    for n in LENGTHS:
        around = np.full(n + 128, 7, dtype)
        out, x = around[64 : 64 + n], sample(n, dtype)
        gf.gelu(x, out=out)
        gf.gelu_backward(x, x, out=out)
        gf.bias_gelu(x, x, out=out)
        gf.geglu(np.concatenate([x, x]), out=out)
        assert (around[:64] == 7).all()
        assert (around[64 + n :] == 7).all()
