"""The eight activations over arrays: GELU by our kernels, the others in plain NumPy.

Each `forward` stands next to its `backward`, dy·f′(x). The dtype of x is that of the result; `out` is written.

Of NumPy's ways the fastest that was found, so that `cost` flatters nobody; nanoseconds per element, float32, AVX2:
ReLU as maximum(zeros, x) 0.16, as maximum(x, 0) 0.39 (NumPy has no vector loop for a scalar there), as x·(x > 0) 0.30;
σ by tanh(x/2) 0.57, as 1/(1 + exp(−x)) 0.71; leaky ReLU's gradient by where() 1.25, as below 0.43. Its price: σ by tanh
is right to 1e-7, not to so many places of a small result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import gelu_fast as gf

Array = npt.NDArray[Any]
LEAK = 0.01


@dataclass(frozen=True)
class Activation:
    """One function.

    Parameters
    ----------
    name : str
    formula : str
    forward : callable
        ``forward(x, out=out)``.
    backward : callable
        ``backward(dy, x, out=out)``: dy·f′(x).
    form : str
        Which GELU it is; empty for the others.
    """

    name: str
    formula: str
    forward: Callable[..., Array]
    backward: Callable[..., Array]
    form: str = ""


def _sigmoid(x: Array, out: Array | None = None) -> Array:
    out = np.multiply(x, 0.5, out=out)
    np.tanh(out, out=out)
    np.multiply(out, 0.5, out=out)
    return np.add(out, 0.5, out=out)


def _sigmoid_backward(dy: Array, x: Array, out: Array | None = None) -> Array:
    """σ′ = ¼·(1 − tanh²(x/2))."""
    out = np.multiply(x, 0.5, out=out)
    _tanh_backward(dy, out, out)
    return np.multiply(out, 0.25, out=out)


def _tanh(x: Array, out: Array | None = None) -> Array:
    return np.asarray(np.tanh(x, out=out))


def _tanh_backward(dy: Array, x: Array, out: Array | None = None) -> Array:
    """tanh′ = 1 − tanh²."""
    out = np.tanh(x, out=out)
    np.multiply(out, out, out=out)
    np.subtract(1, out, out=out)
    return np.multiply(out, dy, out=out)


def _relu(x: Array, out: Array | None = None) -> Array:
    out = np.zeros_like(x) if out is None else out
    out.fill(0)
    return np.maximum(out, x, out=out)


def _relu_backward(dy: Array, x: Array, out: Array | None = None) -> Array:
    """0 at 0, as everywhere."""
    out = np.empty_like(x) if out is None else out
    np.greater(x, 0, out=out)
    return np.multiply(out, dy, out=out)


def _leaky(x: Array, out: Array | None = None) -> Array:
    out = np.multiply(x, x.dtype.type(LEAK), out=out)
    return np.maximum(out, x, out=out)


def _leaky_backward(dy: Array, x: Array, out: Array | None = None) -> Array:
    """Its sum is 1 exactly, in float32 and in float64."""
    leak, one = x.dtype.type(LEAK), x.dtype.type(1)
    out = np.multiply(x > 0, one - leak, out=out)
    np.add(out, leak, out=out)
    return np.multiply(out, dy, out=out)


def _silu(x: Array, out: Array | None = None) -> Array:
    out = _sigmoid(x, out)
    return np.multiply(out, x, out=out)


def _silu_backward(dy: Array, x: Array, out: Array | None = None) -> Array:
    """(x·σ)′ = σ·(1 + x·(1 − σ))."""
    s = _sigmoid(x)
    out = np.subtract(1, s, out=out)
    np.multiply(out, x, out=out)
    np.add(out, 1, out=out)
    np.multiply(out, s, out=out)
    return np.multiply(out, dy, out=out)


def _gelu(name: str, formula: str, form: str) -> Activation:
    return Activation(
        name, formula, partial(gf.gelu, approximate=form), partial(gf.gelu_backward, approximate=form), form
    )


GELU, RELU = "GELU", "ReLU"
ACTIVATIONS = {a.name: a for a in (
    _gelu(GELU, "x·Φ(x)", "none"),
    _gelu("GELU tanh", "½x·(1 + tanh(√(2/π)·(x + 0.044715x³)))", "tanh"),
    _gelu("GELU quick", "x·σ(1.702x)", "quick"),
    Activation("SiLU", "x·σ(x)", _silu, _silu_backward),
    Activation(RELU, "max(x, 0)", _relu, _relu_backward),
    Activation("leaky ReLU", f"max(x, {LEAK}x)", _leaky, _leaky_backward),
    Activation("sigmoid", "σ(x) = 1 / (1 + e⁻ˣ)", _sigmoid, _sigmoid_backward),
    Activation("tanh", "tanh(x)", _tanh, _tanh_backward),
)}  # fmt: skip
