"""The fused forms give the bits of their steps, for any layout and thread count; the sums are as good as stated."""

import ml_dtypes
import numpy as np
import pytest
from functions import DTYPES, FORMS, same_bits, sample

import gelu_fast as gf

WIDE = (np.float32, np.float64)
BF16 = np.dtype(ml_dtypes.bfloat16)


def arrays(shape, dtype, n=3):
    size = int(np.prod(shape))
    return [sample(size, dtype, seed=k).reshape(shape) for k in range(n)]


def compute_type(dtype):
    return np.float64 if dtype == np.float64 else np.float32


def wide(*found):
    with np.errstate(all="ignore"):
        return [a.astype(compute_type(a.dtype)) for a in found]


def rounded(value, dtype):
    with np.errstate(all="ignore"):
        return value.astype(dtype)


@pytest.fixture(autouse=True)
def quiet_reference():
    """The steps written out overflow and multiply inf by 0 as they should; the fused forms must not warn: see below."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (7, 33), (3, 5, 257), (2, 5000), (300, 16)])
def test_bits_of_the_steps(isa, shape, dtype, approximate):
    x, dy, other = arrays(shape, dtype)
    bias = other[(0,) * (len(shape) - 1)].copy()
    wx, wdy, wb = wide(x, dy, bias)
    same_bits(gf.bias_gelu(x, bias, approximate), rounded(gf.gelu(wx + wb, approximate), dtype))
    dx, dbias = gf.bias_gelu_backward(dy, x, bias, approximate)
    slope = gf.gelu_backward(wdy, wx + wb, approximate)
    same_bits(dx, rounded(slope, dtype))
    assert dbias.dtype == x.dtype
    assert dbias.shape == bias.shape

    both = np.concatenate([x, other], axis=-1)
    value, gate = wide(x, other)
    for name, half, pair in (("second", both, (value, gate)), ("first", both, (gate, value))):
        v, g = pair
        same_bits(gf.geglu(half, approximate, gate=name), rounded(v * gf.gelu(g, approximate), dtype))
        found = gf.geglu_backward(dy, half, approximate, gate=name)
        dvalue, dgate = wdy * gf.gelu(g, approximate), gf.gelu_backward(wdy * v, g, approximate)
        parts = [dvalue, dgate] if name == "second" else [dgate, dvalue]
        same_bits(found, rounded(np.concatenate(parts, axis=-1), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_over_rows(isa, threads, dtype):
    """Against the sum in float64 of dx before it is rounded to 16 bits; and the same bits on any number of threads."""
    rng = np.random.default_rng(0)
    for shape in ((1, 5), (9, 3000), (4, 50, 700), (70_000, 3), (2, 70_000)):
        x, dy = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
        bias = rng.standard_normal(shape[-1]).astype(dtype)
        threads(1)
        alone = gf.bias_gelu_backward(dy, x, bias)
        for count in (2, 5):
            threads(count)
            for one, other in zip(gf.bias_gelu_backward(dy, x, bias), alone, strict=True):
                same_bits(one, other)
        wdy, wx, wb = wide(dy, x, bias)
        slope = gf.gelu_backward(wdy, wx + wb).astype(np.float64).reshape(-1, shape[-1])
        exact, size = slope.sum(0), np.abs(slope).sum(0)
        last = {np.dtype(np.float16): 2.0**-11, BF16: 2.0**-8, np.dtype(np.float32): 2.0**-24}.get(x.dtype, 0)
        bound = size * (2.0**-40 if dtype == np.float64 else 2.0**-21) + np.abs(exact) * last
        bound += 2.0**-25 if dtype == np.float16 else 1e-300  # half of its smallest subnormal
        assert (np.abs(alone[1].astype(np.float64) - exact) <= bound).all()


def test_a_million_rows():
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((1_000_000, 3), np.float32) + 1 for _ in range(2))
    dx, dbias = gf.bias_gelu_backward(dy, x, np.zeros(3, np.float32))
    exact, size = dx.astype(np.float64).sum(0), np.abs(dx).astype(np.float64).sum(0)
    assert (np.abs(dbias - exact) <= 1e-6 * size).all()
    assert np.abs(dx.sum(0) - exact).max() > 10 * np.abs(dbias - exact).max()  # NumPy's float32 sum along this axis


@pytest.mark.case(5, 6, 20)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layouts(dtype, threads):
    """Strided, transposed, reversed, broadcast, read-only, byte-swapped and misaligned arrays; out= with gaps."""
    x, dy, other = arrays((6, 40, 64), dtype)
    bias = other[0, 0, :32].copy()
    views = {
        "chunk": (x[..., :32], dy[..., 32:]),
        "columns": (x[..., ::2], dy[..., 1::2]),
        "reversed": (x[::-1, :, 31::-1], dy[:, ::-1, :32]),
        "transposed": (x[:, :32, :].transpose(2, 0, 1), dy[:, :32, :].transpose(2, 0, 1)),
        "broadcast": (np.broadcast_to(x[0, 0, :32], (5, 32)), np.broadcast_to(dy[0, 0, 0], (5, 32))),
    }
    if np.dtype(dtype) != BF16:
        swapped = np.dtype(dtype).newbyteorder()
        views["swapped"] = (x[..., :32].astype(swapped), dy[..., :32].astype(swapped))
    raw = np.zeros(33 * x.itemsize + 1, np.uint8)[1:][: 32 * x.itemsize].view(dtype)
    raw[:] = x[0, 0, :32]
    views["misaligned"] = (raw, dy[0, 0, :32])
    for count in (1, 3):
        threads(count)
        for name, (a, d) in views.items():
            a.flags.writeable = d.flags.writeable = False
            plain, plain_d = np.ascontiguousarray(a).astype(dtype), np.ascontiguousarray(d).astype(dtype)
            expected = gf.bias_gelu(plain, bias)
            same_bits(gf.bias_gelu(a, bias), expected)
            for found, want in zip(
                gf.bias_gelu_backward(d, a, bias), gf.bias_gelu_backward(plain_d, plain, bias), strict=True
            ):
                same_bits(found, want)
            same_bits(gf.geglu(a), gf.geglu(plain))
            same_bits(gf.geglu_backward(d[..., :16], a), gf.geglu_backward(plain_d[..., :16].copy(), plain))
            out = np.zeros((*a.shape[:-1], 70), dtype)[..., 2:66:2]
            assert gf.bias_gelu(a, bias, out=out) is out, name
            same_bits(out, expected)


@pytest.mark.case(8)
@pytest.mark.parametrize("dtype", WIDE)
def test_in_place_and_overlap(dtype):
    (x, dy, _), bias = arrays((50, 96), dtype), sample(96, dtype, seed=5)
    expected = gf.bias_gelu(x, bias)
    y = x.copy()
    assert gf.bias_gelu(y, bias, out=y) is y
    same_bits(y, expected)
    y = np.concatenate([x.ravel(), np.zeros(7, dtype)])
    ahead = y[7:].reshape(x.shape)
    gf.bias_gelu(y[:-7].reshape(x.shape), bias, out=ahead)
    same_bits(ahead, expected)
    y = x.copy()
    expected = gf.geglu_backward(dy[:, :48], x)
    gf.geglu_backward(dy[:, :48], y, out=y)
    same_bits(y, expected)
    y = x.copy()
    expected = gf.geglu(x)
    gf.geglu(y, out=y[:, 20:68])
    same_bits(y[:, 20:68], expected)


@pytest.mark.case(19)
@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0,), (2, 0, 4)])
def test_empty(shape):
    x, bias = np.ones(shape, np.float32), np.ones(shape[-1:], np.float32)
    assert gf.bias_gelu(x, bias).shape == shape
    dx, dbias = gf.bias_gelu_backward(x, x, bias)
    assert (dx.shape, dbias.shape, dbias.sum()) == (shape, bias.shape, 0)
    half = (*shape[:-1], shape[-1] // 2)
    assert gf.geglu(x).shape == half
    assert gf.geglu_backward(np.ones(half, np.float32), x).shape == shape


def test_promotion():
    x = np.arange(-4, 4, dtype=np.int16).reshape(2, 4)
    assert gf.bias_gelu(x, [0, 1, 2, 3]).dtype == np.float64  # a list of ints is int64
    assert gf.bias_gelu(x, np.zeros(4, np.int8)).dtype == np.float32
    assert gf.geglu(x).dtype == np.float32
    assert gf.geglu([1.0, 2.0]) == 1.0 * gf.gelu(2.0)
    assert gf.bias_gelu(x.astype(np.float16), np.zeros(4, np.float32)).dtype == np.float32


def test_no_warnings():
    with np.errstate(all="raise"):
        x, dy = np.float32([[3e38, -3e38, np.inf, -np.inf, np.nan, 0]]), np.full((1, 6), 3e38, np.float32)
        gf.bias_gelu(x, x[0])
        gf.bias_gelu_backward(np.repeat(dy, 9, 0), np.repeat(x, 9, 0), x[0])
        gf.geglu(x)
        gf.geglu_backward(dy[:, :3], x)
        gf.bias_gelu_backward(np.full((9, 2), 6e4, np.float16), np.ones((9, 2), np.float16), np.ones(2, np.float16))


@pytest.mark.case(14)
def test_array_wrappers():
    x = np.ma.masked_array(np.ones((2, 4), np.float32), mask=[[0, 1, 0, 0], [0, 0, 0, 1]])
    y = gf.bias_gelu(x, np.ones(4, np.float32))
    assert type(y) is np.ma.MaskedArray
    assert (y.mask == x.mask).all()
    assert type(gf.geglu(x)) is np.ma.MaskedArray


X = np.ones((3, 4), np.float32)
BAD = [
    (lambda: gf.bias_gelu(X, np.ones(3, "f4")), ValueError, r"bias: expected shape \(4,\), the last axis of x, got"),
    (lambda: gf.bias_gelu(X, np.ones((1, 4), np.float32)), ValueError, "bias: expected shape"),
    (lambda: gf.bias_gelu(np.float32(1), np.float32(1)), ValueError, "x: expected at least one axis"),
    (lambda: gf.bias_gelu(X, np.ones(4, complex)), TypeError, "bias: expected .* got complex128"),
    (lambda: gf.bias_gelu(X, X[0], "fast"), ValueError, "approximate: expected one of"),
    (lambda: gf.bias_gelu(X, X[0], []), ValueError, "approximate: expected one of"),
    (lambda: gf.bias_gelu(X, X[0], out=np.ones((3, 4))), ValueError, "out: expected dtype float32, got float64"),
    (lambda: gf.bias_gelu(X, X[0], out=X.T.copy()), ValueError, r"out: expected shape \(3, 4\), got \(4, 3\)"),
    (lambda: gf.bias_gelu(X, X[0], out=[1]), TypeError, "out: expected a NumPy array of float32"),
    (lambda: gf.bias_gelu_backward(X[:2], X, X[0]), ValueError, r"dy: expected shape \(3, 4\), got \(2, 4\)"),
    (lambda: gf.geglu(X[:, :3]), ValueError, r"x: expected a last axis of even length, got shape \(3, 3\)"),
    (lambda: gf.geglu(np.float32(1)), ValueError, "x: expected a last axis of even length"),
    (lambda: gf.geglu(X, gate="third"), ValueError, "gate: expected 'second' or 'first', got 'third'"),
    (lambda: gf.geglu_backward(X, X), ValueError, r"dy: expected shape \(3, 2\), got \(3, 4\)"),
    (lambda: gf.geglu(np.array(["a", "b"])), TypeError, "x: expected"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
def test_refusals(number):
    call, error, message = BAD[number]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.case(21)
def test_read_only_out_is_left_alone():
    out = np.zeros((3, 4), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out: the array is read-only"):
        gf.bias_gelu(X, X[0], out=out)
    assert not out.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_views_over_rows(dtype, threads):
    """The element-wise functions take views of several axes by rows: the same bits as of a copy in one block."""
    big, slopes = sample(600 * 700, dtype).reshape(2, 300, 700), sample(600 * 700, dtype, seed=1).reshape(2, 300, 700)
    for count in (1, 3):
        threads(count)
        for cut in (np.s_[:, :, :500], np.s_[:, 10:, ::2], np.s_[::-1, :, 1:], np.s_[:, :290]):
            for turn in (lambda a: a, lambda a: a.transpose(2, 0, 1), lambda a: a.swapaxes(0, 1)):
                x, dy = turn(big[cut]), turn(slopes[cut])
                plain, plain_dy = np.ascontiguousarray(x), np.ascontiguousarray(dy)
                for function in (gf.gelu, gf.gelu_grad, gf.gelu_grad2):
                    same_bits(function(x, "tanh"), function(plain, "tanh"))
                y = gf.gelu_backward(dy, x)
                assert y.flags.forc or y.ndim == 3
                same_bits(y, gf.gelu_backward(plain_dy, plain))
                out = np.zeros((*x.shape[:-1], x.shape[-1] + 3), dtype)[..., 3:]
                assert gf.gelu(x, out=out) is out
                same_bits(out, gf.gelu(plain))
                same_bits(gf.ufuncs.gelu(x), gf.gelu(plain))
    y = big.copy()
    gf.gelu(y[:, :, :500], out=y[:, :, 200:])  # overlapping: NumPy's copy
    same_bits(y[:, :, 200:], gf.gelu(np.ascontiguousarray(big[:, :, :500])))
