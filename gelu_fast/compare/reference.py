"""The activations over Python floats, by `math` alone: what `cost` holds the answers to before it times anything."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gelu_fast import forms

from .activations import LEAK, Activation, Array

# Absolute, times max(1, |exact|). In float32 ours are off by 1e-7 and NumPy's σ·(1 − σ) by 2e-7; the tanh form in place
# of the exact one is off by 5e-4.
TOLERANCE = 2e-6
_POINTS = 1000
_STEP = 1e-3

_OTHERS: dict[str, Callable[[float], float]] = {
    "SiLU": lambda x: x / (1 + math.exp(-x)),
    "ReLU": lambda x: x if x > 0 else 0.0,
    "leaky ReLU": lambda x: x if x > 0 else LEAK * x,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


def value(activation: Activation, x: float) -> float:
    """f(x)."""
    return forms.reference(x, activation.form) if activation.form else _OTHERS[activation.name](x)


def slope(activation: Activation, x: float) -> float:
    """f′(x) by a five-point difference, off by 1e-11; not for |x| < 0.002 where f has a corner."""
    def at(k: int) -> float:
        return value(activation, x + k * _STEP)

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * _STEP)


def largest_error(activation: Activation, x: Array, y: Array, dy: Array, dx: Array) -> float:
    """Of forward and backward, on some of the elements.

    Parameters
    ----------
    activation : Activation
    x, y, dy, dx : ndarray of shape (n,)
        What went in and came out: y of forward(x), dx of backward(dy, x).

    Returns
    -------
    float
        Of |computed − exact| / max(1, |exact|); infinite where something is not finite.
    """
    worst = 0.0
    for i in np.linspace(0, x.size - 1, min(x.size, _POINTS)).astype(int):
        point, incoming = float(x[i]), float(dy[i])
        if abs(point) <= 2 * _STEP:
            continue
        pairs = (float(y[i]), value(activation, point)), (float(dx[i]), incoming * slope(activation, point))
        for computed, exact in pairs:
            error = abs(computed - exact) / max(1.0, abs(exact))
            worst = max(worst, error if math.isfinite(error) else math.inf)
    return worst
