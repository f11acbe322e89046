"""A small network of feed-forward blocks, trained by NumPy: it learns, and as PyTorch's own modules do."""

import time

import numpy as np
import torch
from sklearn.datasets import load_digits

import gelu_fast as gf

RATE, BATCH = 0.1, 32


def digits(dtype):
    """(train x, train labels, test x, test labels), by a fixed split."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, labels = (data.data[order] / 16).astype(dtype), data.target[order]
    return x[:1400], labels[:1400], x[1400:], labels[1400:]


def start(dtype):
    """The weights of two blocks, 64 -> 128 -> 64 -> 128 -> 10."""
    rng = np.random.default_rng(1)
    sizes = [(64, 128), (128, 64), (64, 128), (128, 10)]
    dense = [(rng.standard_normal(s) / np.sqrt(s[0])).astype(dtype) for s in sizes]
    return [[dense[k], np.zeros(dense[k].shape[1], dtype), dense[k + 1], np.zeros(dense[k + 1].shape[1], dtype)]
            for k in (0, 2)]  # fmt: skip


def batches(x, labels, epochs):
    rng = np.random.default_rng(2)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for begin in range(0, len(x), BATCH):
            pick = order[begin:begin + BATCH]
            yield x[pick], labels[pick]


def blocks(parts, form):
    return [gf.FeedForward(*p, form) for p in parts]


def step(parts, form, x, labels):
    """One step of gradient descent on the mean cross-entropy, in place; the loss before it."""
    first, second = blocks(parts, form)
    hidden = first(x)
    logits = second(hidden)
    shifted = logits - logits.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(x))
    slope = np.exp(logs)
    slope[rows, labels] -= 1
    slope /= len(x)
    dhidden, *second_grads = second.backward(slope, hidden)
    _, *first_grads = first.backward(dhidden, x)
    for part, grads in zip(parts, (first_grads, second_grads), strict=True):
        for weight, grad in zip(part, grads, strict=True):
            weight -= RATE * grad
    return -logs[rows, labels].mean()


def test_learns_digits():
    x, labels, test_x, test_labels = digits(np.float32)
    parts, begin = start(np.float32), time.monotonic()
    losses = [step(parts, "none", *batch) for batch in batches(x, labels, epochs=40)]
    first, second = blocks(parts, "none")
    accuracy = (second(first(test_x)).argmax(1) == test_labels).mean()
    assert accuracy >= 0.96, accuracy
    assert losses[-1] < 0.1 * losses[0]
    assert time.monotonic() - begin < 60


def test_same_losses_as_torch():
    x, labels, _, _ = digits(np.float64)
    for form in ("none", "tanh"):
        parts = start(np.float64)
        linears = [torch.nn.Linear(*w.shape, dtype=torch.float64) for p in parts for w in (p[0], p[2])]
        with torch.no_grad():
            pairs = [pair for p in parts for pair in ((p[0], p[1]), (p[2], p[3]))]
            for linear, (w, b) in zip(linears, pairs, strict=True):
                linear.weight[:], linear.bias[:] = torch.from_numpy(w.T.copy()), torch.from_numpy(b)
        gelus = [torch.nn.GELU(approximate=form) for _ in range(2)]
        net = torch.nn.Sequential(linears[0], gelus[0], linears[1], linears[2], gelus[1], linears[3])
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        for k, (bx, bl) in enumerate(batches(x, labels, epochs=2)):
            if k == 50:
                break
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(torch.from_numpy(bx)), torch.from_numpy(bl))
            loss.backward()
            optimizer.step()
            assert abs(step(parts, form, bx, bl) - loss.item()) < 1e-10, k
