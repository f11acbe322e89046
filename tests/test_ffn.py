"""The feed-forward block: values, gradients, memory, training, and blocks read from PyTorch, Hugging Face and Keras."""

import copy
import multiprocessing
import os
import pickle
import tracemalloc

os.environ.setdefault("KERAS_BACKEND", "torch")

import numpy as np
import pytest
import torch
from functions import FORMS

import gelu_fast as gf


def weights(dtype, gated=False, biases=True, sizes=(5, 7, 3), seed=0):
    rng = np.random.default_rng(seed)
    width, hidden, out = sizes
    times = 2 if gated else 1
    w1, b1 = rng.standard_normal((width, times * hidden)), rng.standard_normal(times * hidden)
    w2, b2 = rng.standard_normal((hidden, out)), rng.standard_normal(out)
    return [a.astype(dtype) for a in (w1, b1, w2, b2)] if biases else [w1.astype(dtype), None, w2.astype(dtype), None]


def by_torch(parts, form, gated, x, dy):
    """(y, dx, dw1, db1, dw2, db2) in float64 by torch's autograd."""
    w1, b1, w2, b2 = (None if p is None else torch.tensor(p, dtype=torch.float64, requires_grad=True) for p in parts)
    tx = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    z = tx @ w1 if b1 is None else tx @ w1 + b1

    def act(t):
        return t * torch.sigmoid(1.702 * t) if form == "quick" else torch.nn.functional.gelu(t, approximate=form)

    if gated:
        value, gate = z.chunk(2, -1)
        h = value * act(gate)
    else:
        h = act(z)
    y = h @ w2 if b2 is None else h @ w2 + b2
    y.backward(torch.tensor(dy, dtype=torch.float64))
    return [y.detach().numpy()] + [None if t is None else t.grad.numpy() for t in (tx, w1, b1, w2, b2)]


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("leading", [(), (4,), (2, 3), (700,), (0,), (2, 0)])
def test_against_autograd(form, gated, biases, leading, monkeypatch):
    monkeypatch.setattr(gf.ffn, "_BLOCK_BYTES", 100 * 7 * 8)  # several blocks
    parts = weights(np.float64, gated, biases)
    rng = np.random.default_rng(1)
    x, dy = rng.standard_normal((*leading, 5)), rng.standard_normal((*leading, 3))
    ff = gf.FeedForward(*parts, form, gated=gated)
    found = [ff(x), *ff.backward(dy, x)]
    for got, want in zip(found, by_torch(parts, form, gated, x, dy), strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            assert got.dtype == np.float64
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12 * max(1, np.abs(want).max(initial=0)))


@pytest.mark.parametrize("gated", [False, True])
def test_float32_and_inputs(gated):
    parts = weights(np.float32, gated)
    ff = gf.FeedForward(*parts, gated=gated)
    assert ff.dtype == np.float32
    x = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)
    y = ff(x[:, ::2])
    wide = gf.FeedForward(*(p.astype(np.float64) for p in parts), gated=gated)(x[:, ::2].astype(np.float64))
    np.testing.assert_allclose(y, wide, rtol=1e-5, atol=1e-5)
    assert np.array_equal(ff(x[:, ::2].astype(">f4")), y)
    assert ff(x[:, ::2].astype(np.float16)).dtype == np.float32
    frozen = x[:, ::2].copy()
    frozen.flags.writeable = False
    before = [p.copy() for p in parts]
    out = np.empty((6, 3), np.float32)
    assert ff(frozen, out=out) is out
    assert np.array_equal(out, y)
    ff.backward(y, frozen)
    assert all(np.array_equal(a, b) for a, b in zip(parts, before, strict=True))


def test_copies():
    """Pickle, deepcopy and a spawned process (case 12)."""
    x = np.random.default_rng(0).standard_normal((50, 5))
    ff = gf.FeedForward(*weights(np.float64))
    want = ff(x)
    for other in (pickle.loads(pickle.dumps(ff)), copy.deepcopy(ff), copy.copy(ff)):
        assert np.array_equal(other(x), want)
        assert other.w1.flags.f_contiguous
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert np.array_equal(pool.apply(ff, (x,)), want)


BAD = [
    (lambda w: gf.FeedForward(w[0], w[1], w[2][:-1], w[3]), ValueError, "w1: expected 6 columns"),
    (lambda w: gf.FeedForward(*w, gated=True), ValueError, r"w1: expected 2\*7 columns"),
    (lambda w: gf.FeedForward(w[0], w[1][:2], w[2], w[3]), ValueError, r"b1: expected shape \(7,\), got \(2,\)"),
    (lambda w: gf.FeedForward(w[0][0], *w[1:]), ValueError, "w1: expected two axes"),
    (lambda w: gf.FeedForward(None, *w[1:]), TypeError, "w1: expected an array, got None"),
    (lambda w: gf.FeedForward(w[0].astype("f8"), *w[1:]), TypeError, "expected one dtype, got w1 float64"),
    (lambda w: gf.FeedForward(w[0].astype("f2"), *w[1:]), TypeError, "w1: expected float32 or float64, got float16"),
    (lambda w: gf.FeedForward(*w, "gelu"), ValueError, "approximate: expected one of"),
    (lambda w: gf.FeedForward(*w)(np.ones((2, 4), "f4")), ValueError, "x: expected a last axis of 5"),
    (lambda w: gf.FeedForward(*w)(np.ones((2, 5))), TypeError, "x: expected float32 or what converts"),
    (lambda w: gf.FeedForward(*w)(np.float32(1)), ValueError, "x: expected a last axis of 5"),
    (lambda w: gf.FeedForward(*w)(np.ones((2, 5), "f4"), out=np.ones((2, 3))), ValueError, "out: expected float32"),
    (lambda w: gf.FeedForward(*w).backward(np.ones((3, 3), "f4"), np.ones((2, 5), "f4")), ValueError, "dy: expected"),
    (lambda w: gf.FeedForward.from_torch(3), ValueError, "module: expected a torch.nn.Module, got int"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
def test_refusals(number):
    call, error, message = BAD[number]
    with pytest.raises(error, match=message):
        call(weights(np.float32))


def test_memory_of_a_call():
    """Batch 8,192, hidden 2,048: an eighth of the whole hidden array, as the docstring says."""
    parts = weights(np.float32, sizes=(64, 2048, 64))
    ff, x = gf.FeedForward(*parts), np.ones((8192, 64), np.float32)
    out = np.empty((8192, 64), np.float32)
    tracemalloc.start()
    ff(x, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8192 * 2048 * 4 / 8
    assert peak < 7.5 * 2**20 * 1.05


def run_torch(module, x):
    with torch.no_grad():
        return module(torch.from_numpy(x)).numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_from_torch(dtype):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc2 = torch.nn.Linear(12, 6)
            self.act = torch.nn.GELU(approximate="tanh")
            self.drop = torch.nn.Dropout(0.5)
            self.fc1 = torch.nn.Linear(6, 12, bias=False)

        def forward(self, x):
            return self.fc2(self.drop(self.act(self.fc1(x))))

    for module in (Block(), torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Linear(12, 6))):
        module = module.eval().to(dtype)
        ff = gf.FeedForward.from_torch(module)
        assert ff.approximate == ("tanh" if hasattr(module, "act") else "none")
        assert ff.dtype == (np.float64 if dtype == torch.float64 else np.float32)
        x = np.random.default_rng(0).standard_normal((4, 3, 6)).astype(ff.dtype)
        want = run_torch(module.to(torch.float64), x.astype(np.float64))
        np.testing.assert_allclose(ff(x), want, rtol=1e-5, atol=1e-5)


def test_from_torch_refusals():
    linear, gelu = torch.nn.Linear(3, 3), torch.nn.GELU()
    for bad in (
        torch.nn.Sequential(linear, gelu), torch.nn.Sequential(linear, torch.nn.LayerNorm(3), gelu, linear), linear,
        torch.nn.Sequential(linear, torch.nn.PReLU(), torch.nn.Linear(3, 3)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="module: expected two dense layers and a GELU"):
            gf.FeedForward.from_torch(bad)
    with pytest.raises(ValueError, match="module: ReLU is no GELU"):
        gf.FeedForward.from_torch(torch.nn.Sequential(linear, torch.nn.ReLU(), torch.nn.Linear(3, 3)))


def test_from_hugging_face():
    from transformers import BertConfig, CLIPTextConfig, GPT2Config
    from transformers.models.bert.modeling_bert import BertLayer
    from transformers.models.clip.modeling_clip import CLIPMLP
    from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

    torch.manual_seed(0)
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
    gpt2 = GPT2MLP(20, GPT2Config(n_embd=8, n_head=2)).eval()
    ff = gf.FeedForward.from_torch(gpt2)
    assert ff.approximate == "tanh"
    np.testing.assert_allclose(ff(x), run_torch(gpt2, x), rtol=1e-5, atol=1e-6)
    clip = CLIPMLP(CLIPTextConfig(hidden_size=8, intermediate_size=20)).eval()
    ff = gf.FeedForward.from_torch(clip)
    assert ff.approximate == "quick"
    np.testing.assert_allclose(ff(x), run_torch(clip, x), rtol=1e-5, atol=1e-6)
    bert = BertLayer(BertConfig(hidden_size=8, intermediate_size=20, num_attention_heads=2)).eval()
    ff = gf.FeedForward.from_torch(bert)
    assert ff.approximate == "none"
    with torch.no_grad():
        want = bert.output.dense(bert.intermediate(torch.from_numpy(x))).numpy()
    np.testing.assert_allclose(ff(x), want, rtol=1e-5, atol=1e-6)
