import itertools

import numpy as np
import pytest
from blocks import arrays

from gelu_fast import forms
from gelu_fast.export.reference import UNIT, expected, gelu64, plain_float32
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
    assert plain_float32(block, np.ones((1, 3), np.float32), "none")[0, 0] == 2.0**24


def test_allowance_covers_a_bias_that_dwarfs_the_rest():
    weights = (*arrays(4, 8)[:3], np.full(4, 1e6, np.float32))
    x = np.ones((1, 4), np.float32)
    assert expected(read_source(weights), x, "none").allowed[0] > 4 * UNIT * 1e6


def test_allowance_follows_the_block():
    """Noise of the size float32 has; not so wide that exact and tanh meet."""
    block = read_source(arrays(64, 256))
    x = np.random.default_rng(1).standard_normal((16, 64)).astype(np.float32)
    got = expected(block, x, "none")
    size = np.abs(got.y["none"]).max(axis=1)
    assert (got.allowed > UNIT * size).all()
    assert (got.allowed < 1e-4 * size).all()
    assert (np.abs(got.y["tanh"] - got.y["none"]).max(axis=1) > 3 * got.allowed).all()
