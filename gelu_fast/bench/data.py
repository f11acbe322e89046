"""Inputs: random ones of several widths, one constant, and what the hidden layers of two small networks really hold."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

import gelu_fast as gf

from .contenders import aligned, load

Array = npt.NDArray[Any]

NORMAL = "N(0,1)"
DIGITS = "digits network, hidden layer"
# The weights are BERT's initial ones, not trained: nothing can be downloaded here, and the name says so.
BERT = "BERT-like layer, random weights"


class AbsentError(Exception):
    """These data can't be made here; the message says what is missing."""


def make(name: str, size: int, dtype: npt.DTypeLike = np.float32) -> Array:
    """One input array.

    Parameters
    ----------
    name : str
        One of `DATA`.
    size : int
    dtype : dtype
        Drawn in float32 and converted, so that every dtype sees the same values, rounded.

    Returns
    -------
    ndarray of shape (size,)
        Aligned to 64 bytes. The same values each time.

    Raises
    ------
    AbsentError
        If a package that makes these data is not installed.
    """
    values = _DATA[name](size)
    out = aligned(size, dtype)
    out[...] = values
    return out


def gradients(size: int, dtype: npt.DTypeLike = np.float32) -> Array:
    """The `dy` of a backward work: N(0,1), another stream than `make`'s."""
    out = aligned(size, dtype)
    out[...] = np.random.default_rng(1).standard_normal(size, np.float32)
    return out


def _normal(deviation: float) -> Callable[[int], Array]:
    return lambda size: np.random.default_rng(0).standard_normal(size, np.float32) * np.float32(deviation)


def _uniform(size: int) -> Array:
    return np.random.default_rng(0).uniform(-10, 10, size).astype(np.float32)


def _digits(size: int) -> Array:
    return np.resize(_digits_layer(), size)


def _bert(size: int) -> Array:
    return np.resize(_bert_layer(), size)


@cache
def _digits_layer() -> Array:
    """Pre-activations of a 64→256→10 network after 20 epochs on scikit-learn's digits (about 0.99 right on them)."""
    if importlib.util.find_spec("sklearn") is None:
        raise AbsentError("scikit-learn is not installed")
    digits = load("sklearn.datasets").load_digits()
    x = ((digits.data - 8) / 8).astype(np.float32)
    wanted = np.eye(10, dtype=np.float32)[digits.target]
    rng = np.random.default_rng(0)
    w1 = rng.standard_normal((64, 256), np.float32) / np.float32(8)
    w2 = rng.standard_normal((256, 10), np.float32) / np.float32(16)
    b1, b2 = np.zeros(256, np.float32), np.zeros(10, np.float32)
    for _ in range(20):
        order = rng.permutation(len(x))
        for start in range(0, len(x), 64):
            batch = order[start : start + 64]
            hidden = x[batch] @ w1 + b1
            active = gf.gelu(hidden)
            logits = active @ w2 + b2
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            slope = (odds / odds.sum(axis=1, keepdims=True) - wanted[batch]) / np.float32(len(batch))
            inner = gf.gelu_backward(slope @ w2.T, hidden)
            w2 -= np.float32(0.2) * (active.T @ slope)
            b2 -= np.float32(0.2) * slope.sum(axis=0)
            w1 -= np.float32(0.2) * (x[batch].T @ inner)
            b1 -= np.float32(0.2) * inner.sum(axis=0)
    layer: Array = (x @ w1 + b1).ravel()
    return layer


@cache
def _bert_layer() -> Array:
    """What GELU receives in the second of two encoder layers: 128 wide, 512 hidden, weights N(0,0.02) as in BERT."""
    if importlib.util.find_spec("torch") is None:
        raise AbsentError("torch is not installed")
    torch = load("torch")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        layers = [torch.nn.TransformerEncoderLayer(128, 2, 512, 0.0, "gelu", batch_first=True) for _ in range(2)]
        for layer in layers:
            for weight in layer.parameters():
                if weight.dim() > 1:
                    weight.normal_(0, 0.02)
        tokens = torch.nn.functional.layer_norm(torch.randn(8, 128, 128) * 0.02, (128,))
        tokens = layers[0](tokens)
        last = layers[1]
        seen = last.norm1(tokens + last.self_attn(tokens, tokens, tokens, need_weights=False)[0])
        hidden: Array = last.linear1(seen).contiguous().numpy().ravel()
    return hidden


_DATA: dict[str, Callable[[int], Array]] = {
    NORMAL: _normal(1),
    "N(0,0.5)": _normal(0.5),
    "N(0,2)": _normal(2),
    "N(0,4)": _normal(4),
    "U(-10,10)": _uniform,
    "all -5": lambda size: np.full(size, -5, np.float32),
    DIGITS: _digits,
    BERT: _bert,
}
DATA = tuple(_DATA)
