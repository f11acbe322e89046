"""The front door: dtypes, strides, byte order, out, errors (cases 2, 5-8, 19-21 of shared/cases/kernels.md)."""

import numpy as np
import pytest
from functions import DTYPES, FORMS, UNARY, same_bits, sample

import gelu_fast as gf

each_function = pytest.mark.parametrize(("function", "form"), UNARY, ids=lambda v: getattr(v, "__name__", v))


@pytest.mark.case(20)
@each_function
@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_views_equal_the_contiguous_copy(function, form, dtype, isa):
    x = sample(6000, dtype)
    grid = x.reshape(60, 100)
    views = [x[::2], x[::-1], x[1::3], grid.T, grid[:, 10:37], grid[::2, ::-3], np.asfortranarray(grid),
             np.broadcast_to(x[:50], (7, 50)), np.broadcast_to(x[3], (40,)), x[:0], grid[:, :0]]  # fmt: skip
    for view in views:
        same_bits(function(view, form), function(np.ascontiguousarray(view), form))


@each_function
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_value_has_the_same_bits_at_any_length_and_offset(function, form, dtype, isa):
    x = sample(70, dtype)
    one_by_one = np.array([function(x[i : i + 1], form)[0] for i in range(70)], dtype)
    for start in (0, 1, 3, 8, 17):
        for stop in range(start, 71):
            same_bits(function(x[start:stop], form), one_by_one[start:stop])


def test_misaligned_memory():
    x = sample(999)
    raw = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)
    assert not raw.flags.aligned
    same_bits(gf.gelu(raw), gf.gelu(x))


@pytest.mark.case(6)
@each_function
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])  # bfloat16 has one byte order
def test_byte_order(function, form, dtype):
    x = sample(33, dtype)
    swapped = x.astype(x.dtype.newbyteorder(">"))
    same_bits(function(swapped, form), function(x, form))
    out = np.zeros(33, swapped.dtype)
    assert function(swapped, form, out=out) is out
    same_bits(out.astype(dtype), function(x, form))


@pytest.mark.case(5)
@each_function
def test_read_only_input(function, form):
    x = sample(100)
    read_only = np.frombuffer(x.tobytes(), np.float32)
    assert not read_only.flags.writeable
    same_bits(function(read_only, form), function(x, form))


@pytest.mark.case(5)
def test_read_only_backward():
    x, dy = sample(100), sample(100, seed=1)
    frozen = [np.frombuffer(a.tobytes(), np.float32) for a in (dy, x)]
    same_bits(gf.gelu_backward(*frozen), gf.gelu_backward(dy, x))


@pytest.mark.case(8)
@each_function
def test_in_place_and_overlap(function, form, isa):
    x = sample(1000)
    expected = function(x, form)
    same = x.copy()
    assert function(same, form, out=same) is same
    same_bits(same, expected)
    strided = np.repeat(x, 2)
    function(strided[::2], form, out=strided[::2])
    same_bits(strided[::2], expected)
    same_bits(strided[1::2], x)
    shifted = x.copy()
    function(shifted[:-1], form, out=shifted[1:])
    same_bits(shifted[1:], function(x[:-1].copy(), form))
    backwards = x.copy()
    function(backwards, form, out=backwards[::-1])
    same_bits(backwards[::-1], expected)


@each_function
def test_out_may_be_strided(function, form):
    x = sample(500)
    room = np.full((500, 3), 7, np.float32)
    function(x, form, out=room[:, 1])
    same_bits(room[:, 1], function(x, form))
    assert (room[:, [0, 2]] == 7).all()


@pytest.mark.case(7)
@pytest.mark.parametrize("form", FORMS)
def test_scalars_and_0d_follow_numpy(form):
    for value in (1.0, 1, True, np.float32(1), np.float16(1), np.array(1.0), np.array(1, np.float32), np.int8(3)):
        ours, numpys = gf.gelu(value, form), np.sin(value)
        assert type(ours) is type(numpys)
        assert ours.dtype == numpys.dtype
    assert gf.gelu(1.0) == pytest.approx(0.8413447460685429, rel=1e-15)
    assert gf.gelu([[1, 2], [3, 4]]).shape == (2, 2)


@pytest.mark.parametrize("code", ["?", "b", "B", "h", "H", "i", "I", "l", "L", "q", "Q"])
def test_integers_promote_like_numpy(code):
    x = np.array([0, 1, 1], code)
    assert gf.gelu(x).dtype == np.sin(x).dtype
    same_bits(gf.gelu(x), gf.gelu(x.astype(np.sin(x).dtype)))
    out = np.empty(3, np.sin(x).dtype)
    gf.gelu(x, out=out)
    same_bits(out, gf.gelu(x))


@pytest.mark.case(19)
@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)])
def test_empty(shape):
    for function, form in UNARY:
        for dtype in DTYPES:
            result = function(np.empty(shape, dtype), form)
            assert result.shape == shape
            assert result.dtype == dtype
    assert gf.gelu_backward(np.empty(shape), np.empty(shape)).shape == shape


@pytest.mark.parametrize("bad", [1j, "a", np.array([None]), np.array(["2020-01-01"], "M8[D]"), np.zeros(2, "S3"),
                                 np.zeros(2, np.longdouble), np.zeros(2, "f4,f4")], ids=repr)  # fmt: skip
def test_unsupported_dtypes(bad):
    for call in (lambda: gf.gelu(bad), lambda: gf.gelu_backward(1.0, bad)):
        with pytest.raises(TypeError, match=r"^x: expected bfloat16, float16, float32, float64, integers or bools"):
            call()
    with pytest.raises(TypeError, match=r"^dy: expected"):
        gf.gelu_backward(bad, 1.0)


@pytest.mark.parametrize("name", ["erf", "gelu_new", "", None, 3, ["none"], "None"])
def test_unknown_form(name):
    for function in (gf.gelu, gf.gelu_grad, gf.gelu_grad2):
        with pytest.raises(ValueError, match="approximate: expected one of 'none', 'tanh', 'quick', got"):
            function(1.0, name)


def test_unknown_backend():
    for name in ("gpu", "", 1):
        with pytest.raises(ValueError, match="backend: expected"):
            gf.gelu(np.ones(3), backend=name)
    same_bits(gf.gelu(sample(9), backend="cython"), gf.gelu(sample(9)))


@pytest.mark.case(21)
def test_wrong_out():
    x = sample(6)
    frozen = np.zeros(6, np.float32)
    frozen.flags.writeable = False
    cases = [
        (np.full(5, 7, np.float32), ValueError, r"out: expected shape \(6,\), got \(5,\)"),
        (np.full((2, 6), 7, np.float32), ValueError, r"out: expected shape \(6,\), got \(2, 6\)"),
        (np.full(6, 7, np.float64), ValueError, "out: expected dtype float32, got float64"),
        (np.full(6, 7, np.int32), ValueError, "out: expected dtype float32, got int32"),
        (frozen, ValueError, "out: the array is read-only"),
        ([0] * 6, TypeError, "out: expected a NumPy array of float32 and shape"),
    ]
    for out, error, message in cases:
        before = np.array(out)
        for call in (lambda out=out: gf.gelu(x, out=out), lambda out=out: gf.gelu_backward(x, x, out=out)):
            with pytest.raises(error, match=message):
                call()
        assert np.array_equal(before, np.array(out))


@pytest.mark.parametrize("form", FORMS)
def test_backward_is_dy_times_the_derivative(form, isa):
    for dtype in (np.float32, np.float64):
        x, dy = sample(3001, dtype), sample(3001, dtype, seed=1)
        with np.errstate(invalid="ignore"):  # NumPy's own product warns at inf*0
            expected = dy * gf.gelu_grad(x, form)
        same_bits(gf.gelu_backward(dy, x, form), expected)
        same_bits(gf.gelu_backward(dy[::3], x[::3], form), expected[::3])
        with np.errstate(invalid="ignore"):
            same_bits(gf.gelu_backward(dy[:5, None], x, form), dy[:5, None] * gf.gelu_grad(x, form))
        for target in (x.copy(), dy.copy()):
            out = np.array(target)
            args = (dy, out) if np.array_equal(out, x, equal_nan=True) else (out, x)
            gf.gelu_backward(*args, form, out=out)
            same_bits(out, expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_with_grad_equals_the_two_calls(form, dtype, isa):
    x = sample(3001, dtype)
    for view in (x, x[::3], x[:0], x[:1], x[:3000].reshape(30, 100).T):
        value, derivative = gf.gelu_with_grad(view, form)
        same_bits(value, gf.gelu(view, form))
        same_bits(derivative, gf.gelu_grad(view, form))
    name = {"none": "gelu_with_grad", "tanh": "gelu_tanh_with_grad", "quick": "gelu_quick_with_grad"}[form]
    for outputs in ((x.copy(), np.empty_like(x)), (np.empty_like(x), x.copy())):  # either may be x itself
        source = outputs[0] if np.array_equal(outputs[0].view("u1"), x.view("u1")) else outputs[1]
        value, derivative = getattr(gf.ufuncs, name)(source, out=outputs)
        same_bits(value, gf.gelu(x, form))
        same_bits(derivative, gf.gelu_grad(x, form))


def test_backward_promotes():
    assert gf.gelu_backward(np.ones(3, np.float32), np.ones(3)).dtype == np.float64
    assert gf.gelu_backward(np.ones(3, np.float32), np.ones(3, np.int8)).dtype == np.float32
    assert gf.gelu_backward(1.0, np.ones(3, np.float32)).dtype == np.float32
    with pytest.raises(ValueError, match="broadcast"):
        gf.gelu_backward(np.ones(3), np.ones(4))


def test_bare_ufuncs_are_ufuncs():
    assert isinstance(gf.ufuncs.gelu, np.ufunc)
    x = sample(20)
    mask = np.arange(20) % 2 == 0
    out = np.zeros(20, np.float32)
    gf.ufuncs.gelu(x, out=out, where=mask)
    same_bits(out[mask], gf.gelu(x)[mask])
    assert (out[~mask] == 0).all()
    assert {name for name in dir(gf.ufuncs) if name.startswith("gelu")} == set(gf.ufuncs.__all__)
