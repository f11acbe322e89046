"""Blocks that several test modules export: arrays with PyTorch's initial distribution, and the module people write."""

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
