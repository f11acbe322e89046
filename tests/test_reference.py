import itertools

import numpy as np
import pytest
from blocks import arrays

from gelu_fast import forms
from gelu_fast.export.blocks import Stack
from gelu_fast.export.reference import expected, gelu64, plain, unit
from gelu_fast.export.sources import read_source

POINTS = np.concatenate([np.linspace(-40, 40, 4001), [0.0, -0.0, 1e-300, -1e-300, 1e30, -1e30, 300.0, -300.0]])


@pytest.mark.parametrize("form", forms.FORMS)
def test_gelu64_agrees_with_the_scalar_reference(form):
    want = np.array([forms.reference(x, form) for x in POINTS.tolist()])
    np.testing.assert_allclose(gelu64(POINTS, form), want, rtol=1e-12, atol=1e-300)


def test_gelu64_known_values():
    got = [gelu64(np.array([-1.0]), form)[0] for form in forms.FORMS]
    # By mpmath, 30 digits; case 12 of the bug reports confuses the first two.
    np.testing.assert_allclose(got, [-0.158655253931457, -0.158808009391723, -0.154204234067179], rtol=1e-12)


def test_unknown_form():
    with pytest.raises(ValueError, match=r"form: expected one of .* got 'erf'"):
        gelu64(POINTS, "erf")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("form", forms.FORMS)
def test_expected_is_the_block(form, bias):
    weights = arrays(5, 7, 3, bias=bias)
    x = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    w1, b1, w2, b2 = (None if a is None else a.astype(np.float64) for a in weights)
    want = np.empty((4, 3))
    for row, column in itertools.product(range(4), range(3)):
        total = 0.0 if b2 is None else b2[column]
        for k in range(7):
            h = sum(float(x[row, i]) * w1[i, k] for i in range(5)) + (0.0 if b1 is None else b1[k])
            total += forms.reference(h, form) * w2[k, column]
        want[row, column] = total
    got = expected(read_source(weights), x, form)
    np.testing.assert_allclose(got.y[form], want, rtol=1e-12, atol=1e-14)


def test_chunks_of_the_hidden_layer_change_nothing(monkeypatch):
    block = read_source(arrays(5, 700, 3))
    x = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
    whole = expected(block, x, "none")
    monkeypatch.setattr("gelu_fast.export.reference._CHUNK", 64)
    parts = expected(block, x, "none")
    np.testing.assert_allclose(parts.y["none"], whole.y["none"], rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(parts.allowed, whole.allowed, rtol=1e-6)


def test_plain_float32_rounds_each_step():
    # 2^24 + 1 + 1: a sum that keeps more than float32 would say 2^24 + 2.
    w1 = np.array([[2.0**24], [1.0], [1.0]], np.float32)
    block = read_source((w1, None, np.ones((1, 1), np.float32), None))
    assert plain(block, np.ones((1, 3), np.float32), "none")[0, 0] == 2.0**24


def test_plain_in_16_bit_rounds_each_node():
    """2048 + 1 rounds to 2048, and so does that with the bias of 1; in float32 it would be 2050."""
    w1 = np.array([[2048.0], [1.0], [0.0]], np.float16)
    block = read_source((w1, np.ones(1, np.float16), np.ones((1, 1), np.float16), None))
    assert plain(block, np.ones((1, 3), np.float16), "none")[0, 0] == 2048


@pytest.mark.parametrize("form", forms.FORMS)
def test_limits_of_gelu64(form):
    got = gelu64(np.array([np.inf, -np.inf, np.nan, -0.0, -1e200]), form)
    assert got[0] == np.inf
    assert got[1] == 0
    assert np.signbit(got[[1, 3, 4]]).all()
    assert np.isnan(got[2])


def test_a_stack_is_block_after_block():
    stack = Stack(tuple(read_source(arrays(8, 12, seed=k)).blocks[0] for k in range(3)))
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    want = x.astype(np.float64)
    for block in stack.blocks:
        want = gelu64(want @ block.w1.astype(np.float64) + block.b1, "tanh") @ block.w2.astype(np.float64) + block.b2
    np.testing.assert_allclose(expected(stack, x, "tanh").y["tanh"], want, rtol=1e-12, atol=1e-14)


def test_allowance_of_a_stack_covers_errors_that_positive_weights_add_up():
    """Six times 64 → 256 → 64 with every GELU one unit too large, as runtimes' kernels may be."""
    stack = Stack(tuple(read_source(tuple(map(np.abs, arrays(64, 256, seed=k)))).blocks[0] for k in range(6)))
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    y = x.astype(np.float64)
    for block in stack.blocks:
        h = y @ block.w1.astype(np.float64) + block.b1
        y = (gelu64(h, "none") + 2 * unit(np.float32) * np.abs(h)) @ block.w2.astype(np.float64) + block.b2
    got = expected(stack, x, "none")
    assert (np.abs(y - got.y["none"]).max(axis=1) < got.allowed).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_allowance_follows_the_dtype(dtype):
    block = read_source(arrays(64, 256, dtype=dtype))
    x = np.random.default_rng(1).standard_normal((16, 64)).astype(dtype)
    got = expected(block, x, "none")
    share = got.allowed / np.abs(got.y["none"]).max(axis=1)
    assert (share > unit(dtype)).all()
    assert (share < 200 * unit(dtype)).all()


def test_allowance_covers_a_bias_that_dwarfs_the_rest():
    weights = (*arrays(4, 8)[:3], np.full(4, 1e6, np.float32))
    x = np.ones((1, 4), np.float32)
    assert expected(read_source(weights), x, "none").allowed[0] > 4 * unit(np.float32) * 1e6


def test_allowance_follows_the_block():
    """Noise of the size float32 has; not so wide that exact and tanh meet."""
    block = read_source(arrays(64, 256))
    x = np.random.default_rng(1).standard_normal((16, 64)).astype(np.float32)
    got = expected(block, x, "none")
    size = np.abs(got.y["none"]).max(axis=1)
    assert (got.allowed > unit(np.float32) * size).all()
    assert (got.allowed < 1e-4 * size).all()
    assert (np.abs(got.y["tanh"] - got.y["none"]).max(axis=1) > 3 * got.allowed).all()
