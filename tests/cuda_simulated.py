"""What test_cuda_simulator.py runs under NUMBA_ENABLE_CUDASIM=1: one case by name."""

import re
import sys
from fractions import Fraction

import numpy as np
import pytest
from functions import FORMS, same_bits, sample
from numba import cuda

import gelu_fast as gf
from gelu_fast.bounds import NEAR_ROOT, NUMBA_NEAR_ROOT, ULP
from gelu_fast.cuda import queue
from gelu_fast.cuda import sums as sums_module

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


def bias_backward():
    """dx has the bits of the two steps; dbias is their exact sum, rounded, in pairs; both whatever the grid."""
    for dtype in (np.float32, np.float64):
        for rows, n in ((37, 12), (5, 7), (4, 1)):  # rows of 16-byte accesses in all, in part, in none
            dy, x = sample(rows * n, dtype, seed=3).reshape(rows, n), sample(rows * n, dtype).reshape(rows, n)
            bias = sample(n, dtype, seed=2)
            for form in FORMS:
                dx, dbias = gf.cuda.bias_gelu_backward(device(dy), device(x), device(bias), form)
                dx, dbias = dx.copy_to_host(), dbias.copy_to_host()
                with np.errstate(all="ignore"):
                    same_bits(dx, gf.cuda.gelu_backward(device(dy), device(x + bias), form).copy_to_host())
                    sums(dx, dbias, 2.0**-40 if dtype == np.float32 else 2.0**-98)
    finite = np.random.default_rng(1).standard_normal((2, 41, 8)).astype(np.float32)
    with np.errstate(all="ignore"):
        of_cpu = gf.bias_gelu_backward(*finite, finite[0, 0])
    on_device = gf.bias_gelu_backward(*map(device, finite), device(finite[0, 0].copy()))
    for got, right in zip(on_device, of_cpu, strict=True):
        assert np.abs(got.copy_to_host() - right).max() <= 2.0**-20
    x = np.zeros((3, 4), np.float32)
    dy = np.float32([[np.inf, np.inf, 3e38, 1], [1, -np.inf, 3e38, np.nan], [1, 1, 1, 1]])
    dbias = gf.cuda.bias_gelu_backward(device(dy), device(x), device(x[0].copy()))[1].copy_to_host()
    same_bits(dbias, np.float32([np.inf, np.nan, 3e38, np.nan]))
    empty = device(np.zeros((0, 3), np.float32))
    dx, dbias = gf.bias_gelu_backward(empty, empty, device(np.ones(3, np.float32)))
    assert dx.shape == (0, 3)
    same_bits(dbias.copy_to_host(), np.zeros(3, np.float32))
    empty = device(np.zeros((3, 0), np.float32))
    dx, dbias = gf.bias_gelu_backward(empty, empty, device(np.zeros(0, np.float32)))
    assert (dx.shape, dbias.shape) == ((3, 0), (0,))


def sums(dx, dbias, relative):
    """dbias against the columns of dx added exactly."""
    for column, got in zip(dx.reshape(-1, dx.shape[-1]).T, dbias, strict=True):
        if not np.isfinite(column).all():
            same_bits(np.asarray(got), np.asarray(column.sum()))
            continue
        exact = sum(map(Fraction, column.tolist()))
        if abs(exact) >= np.finfo(dbias.dtype).max:
            continue
        allowed = Fraction(relative) * sum(map(abs, map(Fraction, column.tolist())))
        assert abs(Fraction(float(got)) - exact) <= Fraction(float(np.spacing(abs(got)))) / 2 + allowed


def bias_backward_order():
    """The same bits on every grid and of every stride, and where sums of blocks are added in blocks again."""
    rng = np.random.default_rng(0)
    # Sums that all but cancel, so that another order gives other bits.
    half = rng.standard_normal((550, 4)) * np.exp2(rng.uniform(0, 60, (550, 4)))
    dy = np.concatenate([half, -half[::-1] * (1 + 2.0**-20)]).astype(np.float32)
    x, bias = np.full((1100, 4), 0.5, np.float32), np.ones(4, np.float32)
    assert -(-1100 // sums_module.block_of(1100, 4, "float32")) > sums_module.LAST
    right = [a.copy_to_host() for a in gf.cuda.bias_gelu_backward(device(dy), device(x), device(bias))]
    sums(*right, 2.0**-40)
    queue.SIMULATED = (3, 1), (2, 4)
    wide = device(np.repeat(x, 2, axis=1))
    for slopes, numbers in ((dy, device(x)), (np.asfortranarray(dy), wide[:, ::2])):
        got = gf.cuda.bias_gelu_backward(device(slopes), numbers, device(bias))
        for a, b in zip(got, right, strict=True):
            same_bits(a.copy_to_host(), b)
    cube = [device(a.reshape(11, 100, 4)) for a in (dy, x)]
    got = gf.cuda.bias_gelu_backward(*cube, device(bias))
    assert got[0].shape == (11, 100, 4)
    same_bits(got[0].copy_to_host().reshape(1100, 4), right[0])
    same_bits(got[1].copy_to_host(), right[1])
    raises(ValueError, "nested loops", lambda: gf.cuda.bias_gelu_backward(
        cube[0], device(np.ascontiguousarray(x.reshape(11, 100, 4).transpose(1, 0, 2))).transpose((1, 0, 2)),
        device(bias)))  # fmt: skip


def gate_backward():
    """The bits of the steps; in place too."""
    for dtype in (np.float32, np.float64):
        for n in (12, 3):
            x, dy = sample(7 * 2 * n, dtype).reshape(7, 2 * n), sample(7 * n, dtype, seed=4).reshape(7, n)
            for form in FORMS:
                for gate in ("first", "second"):
                    g, value = (x[:, :n], x[:, n:]) if gate == "first" else (x[:, n:], x[:, :n])
                    on_device = device(np.ascontiguousarray(g))
                    with np.errstate(all="ignore"):
                        of_value = dy * gf.cuda.gelu(on_device, form).copy_to_host()
                        of_gate = dy * value * gf.cuda.gelu_grad(on_device, form).copy_to_host()
                    right = np.concatenate((of_gate, of_value) if gate == "first" else (of_value, of_gate), axis=-1)
                    got = gf.geglu_backward(device(dy), device(x), form, gate=gate)
                    same_bits(got.copy_to_host(), right)
                    own = device(x)
                    assert gf.cuda.geglu_backward(device(dy), own, form, gate=gate, out=own) is own
                    same_bits(own.copy_to_host(), right)
    x, dy = np.random.default_rng(2).standard_normal((2, 9, 16)).astype(np.float32)
    dy = dy[:, :8].copy()
    for form in FORMS:
        got = gf.geglu_backward(device(dy), device(x), form).copy_to_host()
        assert np.abs(got - gf.geglu_backward(dy, x, form)).max() <= 2.0**-20
    assert gf.geglu_backward(device(dy[:0]), device(x[:0])).shape == (0, 16)
    raises(ValueError, "dy: expected shape (9, 8), got (9, 16)", lambda: gf.geglu_backward(device(x), device(x)))
    larger = device(np.zeros((10, 16), np.float32))
    raises(ValueError, "overlaps an input", lambda: gf.geglu_backward(device(dy), larger[:9], out=larger[1:]))


def backward_of_16_bits():
    """The float32 results of the same numbers, rounded."""
    import ml_dtypes

    rng = np.random.default_rng(5)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x, dy = (rng.standard_normal((19, 16)) * 2).astype(dtype), rng.standard_normal((19, 16)).astype(dtype)
        bias = rng.standard_normal(16).astype(dtype)
        bits = np.float16 if dtype == np.float16 else np.uint16
        narrow = [device(a.view(bits)) for a in (dy, x, bias)]
        wide = [device(a.astype(np.float32)) for a in (dy, x, bias)]
        for form in FORMS:
            dx, dbias = (a.copy_to_host().view(dtype) for a in gf.cuda.bias_gelu_backward(*narrow, form))
            dx32, dbias32 = (a.copy_to_host() for a in gf.cuda.bias_gelu_backward(*wide, form))
            same_bits(dx.view(np.uint16), dx32.astype(dtype).view(np.uint16))
            same_bits(dbias.view(np.uint16), dbias32.astype(dtype).view(np.uint16))
            half = [device(a[:, :8].copy().view(bits)) for a in (dy,)]
            got = gf.cuda.geglu_backward(half[0], narrow[1], form).copy_to_host().view(dtype)
            right = gf.cuda.geglu_backward(device(dy[:, :8].astype(np.float32)), wide[1], form).copy_to_host()
            right = right.astype(dtype)
            gap = np.abs(got.view(np.int16).astype(int) - right.view(np.int16))
            assert gap.max() <= 1  # the value's half has a `gelu` of its own
            same_bits(got[:, 8:].view(np.uint16), right[:, 8:].view(np.uint16))


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
    raises(TypeError, "expected one dtype", lambda: gf.geglu_backward(device(sample(6, np.float64)), x))
    raises(TypeError, "bias: expected an array on a CUDA device", lambda: gf.bias_gelu_backward(x, x, sample(12)))
    raises(ValueError, "dy: expected shape (12,), got (11,)",
           lambda: gf.bias_gelu_backward(device(sample(11)), x, x))  # fmt: skip
    raises(ValueError, "bias: expected shape (12,)", lambda: gf.bias_gelu_backward(x, x, device(sample(11))))
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
