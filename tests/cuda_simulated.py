"""What test_cuda_simulator.py runs under NUMBA_ENABLE_CUDASIM=1: one case by name."""

import re
import sys

import numpy as np
import pytest
from functions import FORMS, same_bits, sample
from numba import cuda

import gelu_fast as gf
from gelu_fast.bounds import NEAR_ROOT, NUMBA_NEAR_ROOT, ULP

UNARY = ("gelu", "gelu_grad", "gelu_grad2")


def device(x):
    return cuda.to_device(x)


def raises(error, message, call):
    with pytest.raises(error, match=re.escape(message)):
        call()


def roots(function, form):
    """Where a function changes its sign away from 0."""
    x = np.linspace(-3, 3, 60001) + 1e-7
    y = getattr(gf, function)(x, form)
    return x[1:][(y[1:] < 0) != (y[:-1] < 0)]


def within_bounds(got, x, function, form, allowed):
    """`got` against the CPU's float64, which has an error of its own where x is float64 too."""
    exact = getattr(gf, function)(x.astype(np.float64), form)
    same_bits(np.isnan(got), np.isnan(exact))
    dtype = got.dtype
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - exact)
        unit = np.spacing(np.abs(exact).astype(dtype)).astype(np.float64)
        fine = (error <= allowed * unit) | (got == exact) | np.isnan(exact)
    if function != "gelu":
        for root in roots(function, form):
            fine |= (np.abs(x - root) < NEAR_ROOT) & (error <= NUMBA_NEAR_ROOT[dtype.name] + 2.0**-54)
    assert fine.all(), (function, form, dtype, x[~fine][:5], got[~fine][:5], exact[~fine][:5])
    same_bits(np.signbit(got[got == 0]), np.signbit(exact[got == 0]))


def values():
    for dtype in (np.float32, np.float64):
        x = sample(603, dtype)
        for function in UNARY:
            for form in FORMS:
                got = getattr(gf.cuda, function)(device(x), form).copy_to_host()
                assert got.dtype == dtype
                within_bounds(got, x, function, form, ULP[function, got.dtype.name] + (2 if dtype == np.float64 else 0))
        dy = sample(603, dtype, seed=1)
        for form in FORMS:
            slope = gf.cuda.gelu_grad(device(x), form).copy_to_host()
            with np.errstate(all="ignore"):
                same_bits(gf.cuda.gelu_backward(device(dy), device(x), form).copy_to_host(), dy * slope)
    assert gf.cuda.gelu(device(np.float32([-0.0]))).copy_to_host().view(np.uint32) == 1 << 31


def sixteen_bits():
    import ml_dtypes

    bits = np.arange(5, 65536, 67, dtype=np.uint16)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = bits.view(dtype)
        held = x if dtype == np.float16 else bits
        for function in UNARY:
            for form in FORMS:
                got = getattr(gf.cuda, function)(device(held), form).copy_to_host().view(dtype)
                right = getattr(gf, function)(x, form)
                same_bits(np.isnan(got), np.isnan(right))
                wrong = (got.view(np.uint16) != right.view(np.uint16)) & ~np.isnan(right)
                assert wrong.sum() <= 4, (function, form, dtype, x[wrong], got[wrong], right[wrong])
                gap = got.view(np.int16).astype(int) - right.view(np.int16)
                assert np.abs(gap[wrong]).max(initial=0) <= 1


def fused():
    x = sample(7 * 24).reshape(7, 24)
    bias = sample(24, seed=2)
    for form in FORMS:
        with np.errstate(all="ignore"):
            total = x + bias
        same_bits(gf.cuda.bias_gelu(device(x), device(bias), form).copy_to_host(),
                  gf.cuda.gelu(device(total), form).copy_to_host())  # fmt: skip
        for gate in ("first", "second"):
            g, value = (x[:, :12], x[:, 12:]) if gate == "first" else (x[:, 12:], x[:, :12])
            g, value = np.ascontiguousarray(g), np.ascontiguousarray(value)
            with np.errstate(all="ignore"):
                right = value * gf.cuda.gelu(device(g), form).copy_to_host()
            same_bits(gf.cuda.geglu(device(x), form, gate=gate).copy_to_host(), right)
    odd = sample(5 * 6).reshape(5, 6)  # rows of three: no 16-byte access
    g = np.ascontiguousarray(odd[:, 3:])
    with np.errstate(all="ignore"):
        right = odd[:, :3] * gf.cuda.gelu(device(g)).copy_to_host()
    same_bits(gf.cuda.geglu(device(odd)).copy_to_host(), right)
    half = sample(40, np.float16).reshape(5, 8)
    with np.errstate(all="ignore"):
        right = gf.bias_gelu(half, half[0])
    got = gf.cuda.bias_gelu(device(half), device(half[0].copy())).copy_to_host()
    assert (np.isclose(got, right, rtol=2.0**-10, atol=0) | np.isnan(right) | (got == right)).all()


def layouts():
    """The same bits wherever a number stands."""
    x = sample(1200)
    right = gf.cuda.gelu(device(x)).copy_to_host()
    for length in (0, 1, 3, 4, 5, 17, 31):
        for start in range(5):
            part = device(x)[start : start + length]
            same_bits(gf.cuda.gelu(part).copy_to_host(), right[start : start + length])
    wide, answer = x.reshape(30, 40), right.reshape(30, 40)
    views = [lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::3], lambda a: a[:, 1:9], lambda a: a[:, 3:4],
             lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: a[3], lambda a: a[:, 2],
             lambda a: a[2:, 5:17].T]  # fmt: skip
    for view in views:
        got = gf.cuda.gelu(view(device(wide)))
        same_bits(got.copy_to_host(), np.ascontiguousarray(view(answer)))
    cube = np.asfortranarray(x.reshape(10, 12, 10))
    got = gf.cuda.gelu(device(cube)).copy_to_host()
    same_bits(got, right.reshape(10, 12, 10))
    assert got.strides == cube.strides
    same_bits(gf.cuda.gelu(device(np.array(x[0]))).copy_to_host(), right[0])
    swapped = gf.cuda.gelu(device(x.reshape(10, 12, 10)).transpose((1, 0, 2)))
    same_bits(swapped.copy_to_host(), right.reshape(10, 12, 10).transpose(1, 0, 2))
    with np.errstate(all="ignore"):
        product = gf.cuda.gelu_backward(device(wide[0].copy()), device(wide)).copy_to_host()
        same_bits(product, wide[0] * gf.cuda.gelu_grad(device(wide)).copy_to_host())
    raises(ValueError, "nested loops", lambda: gf.cuda.gelu(device(x.reshape(10, 12, 10))[::2, ::2, ::2]))


def out():
    x = sample(99)
    right = gf.cuda.gelu(device(x)).copy_to_host()
    target = device(np.zeros(99, np.float32))
    assert gf.cuda.gelu(device(x), out=target) is target
    same_bits(target.copy_to_host(), right)
    own = device(x.copy())
    gf.cuda.gelu(own, out=own)
    same_bits(own.copy_to_host(), right)
    every = device(np.full(198, 5, np.float32))
    gf.cuda.gelu(device(x), out=every[::2])
    same_bits(every.copy_to_host()[::2], right)
    assert (every.copy_to_host()[1::2] == 5).all()
    larger = device(np.zeros(200, np.float32))
    raises(ValueError, "overlaps", lambda: gf.cuda.gelu(larger[:99], out=larger[1:100]))
    raises(ValueError, "expected shape (99,), got (98,)", lambda: gf.cuda.gelu(device(x), out=larger[:98]))
    doubles = device(np.zeros(99))
    raises(ValueError, "expected dtype float32, got float64", lambda: gf.cuda.gelu(device(x), out=doubles))
    frozen = np.zeros(99, np.float32)
    frozen.flags.writeable = False
    closed = device(x)
    closed._ary.flags.writeable = False
    raises(ValueError, "read-only", lambda: gf.cuda.gelu(device(x), out=closed))
    same_bits(gf.cuda.gelu(closed).copy_to_host(), right)
    one = device(np.zeros(1, np.float32))
    one._ary = np.lib.stride_tricks.as_strided(one._ary, (99,), (0,))
    raises(ValueError, "share one place", lambda: gf.cuda.gelu(device(x), out=one))
    raises(TypeError, "out: expected an array on a CUDA device", lambda: gf.cuda.gelu(device(x), out=frozen))


def refused():
    x = device(sample(12))
    raises(ValueError, "approximate: expected one of", lambda: gf.cuda.gelu(x, "erf"))
    raises(ValueError, "gate: expected", lambda: gf.cuda.geglu(x, gate="third"))
    raises(ValueError, "bias: expected shape (12,)", lambda: gf.cuda.bias_gelu(x, device(sample(11))))
    raises(ValueError, "last axis of even length", lambda: gf.cuda.geglu(device(sample(11))))
    raises(TypeError, "expected one dtype", lambda: gf.cuda.gelu_backward(device(sample(12, np.float64)), x))
    raises(TypeError, "dy: expected an array on a CUDA device", lambda: gf.cuda.gelu_backward(1.0, x))
    raises(TypeError, "got '<i4'", lambda: gf.cuda.gelu(device(np.arange(3, dtype=np.int32))))


def front_door():
    x = sample(60).reshape(3, 20)
    d = device(x)
    same_bits(gf.gelu(d, "tanh").copy_to_host(), gf.cuda.gelu(d, "tanh").copy_to_host())
    same_bits(gf.gelu_grad2(d, backend="cuda").copy_to_host(), gf.cuda.gelu_grad2(d).copy_to_host())
    same_bits(gf.gelu_backward(d, d).copy_to_host(), gf.cuda.gelu_backward(d, d).copy_to_host())
    value, slope = gf.gelu_with_grad(d)
    same_bits(value.copy_to_host(), gf.cuda.gelu(d).copy_to_host())
    same_bits(slope.copy_to_host(), gf.cuda.gelu_grad(d).copy_to_host())
    same_bits(gf.bias_gelu(d, device(x[0].copy())).copy_to_host(),
              gf.cuda.bias_gelu(d, device(x[0].copy())).copy_to_host())  # fmt: skip
    same_bits(gf.geglu(d, gate="first").copy_to_host(), gf.cuda.geglu(d, gate="first").copy_to_host())
    raises(TypeError, "backend='cython' takes NumPy arrays", lambda: gf.gelu(d, backend="cython"))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("done")
