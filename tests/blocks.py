"""Blocks that several test modules export: arrays with PyTorch's initial distribution, and the module people write."""

import math

import numpy as np
import torch
from torch import nn

NAMES = ("w1", "b1", "w2", "b2")


def arrays(n=16, hidden=64, out=None, *, seed=0, bias=True, dtype=np.float32):
    """(w1, b1, w2, b2) of a block n → hidden → out."""
    rng = np.random.default_rng(seed)
    out = n if out is None else out

    def draw(*shape, fan_in):
        return (rng.uniform(-1, 1, shape) / np.sqrt(fan_in)).astype(dtype)

    return (
        draw(n, hidden, fan_in=n), draw(hidden, fan_in=n) if bias else None,
        draw(hidden, out, fan_in=hidden), draw(out, fan_in=hidden) if bias else None,
    )  # fmt: skip


class FeedForwardBlock(nn.Module):
    def __init__(self, input_dim, hidden_dim, approximate="none", bias=True):
        super().__init__()
        self.fc1 = nn.Linear(input_dim, hidden_dim, bias=bias)
        self.act = nn.GELU(approximate=approximate)
        self.fc2 = nn.Linear(hidden_dim, input_dim, bias=bias)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


def torch_block(*args, **kwargs):
    """The same random weights every time, and the generator's state left alone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return FeedForwardBlock(*args, **kwargs)


def gelu64(x, form):
    """GELU of a float64 array from the C library's erfc, tanh and exp alone."""
    scalar = {
        "none": lambda v: v / 2 * math.erfc(-v / math.sqrt(2)),
        "tanh": lambda v: v / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
        "quick": lambda v: v / (1 + math.exp(-1.702 * v)),
    }[form]
    return np.vectorize(scalar, otypes=[np.float64])(np.asarray(x, np.float64))


def run64(x, blocks, form):
    """Blocks (w1, b1, w2, b2), or with these attributes, one after the other in float64."""
    x = np.asarray(x, np.float64)
    for block in blocks:
        given = block if isinstance(block, tuple) else [getattr(block, name) for name in NAMES]
        w1, b1, w2, b2 = (0.0 if a is None else np.asarray(a).astype(np.float64) for a in given)
        x = gelu64(x @ w1 + b1, form) @ w2 + b2
    return x


def rows(width, count=5, seed=0):
    return np.random.default_rng(seed).standard_normal((count, width))
