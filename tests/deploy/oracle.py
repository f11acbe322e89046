"""The answers of the deployment cases, in float64 from math.erfc and math.exp: nothing of gelu_fast is in it."""

import math

import numpy as np


def gelu(x, formula):
    """GELU of one float; -inf gives its limit, 0."""
    if math.isinf(x):
        return max(x, 0.0)
    if formula == "none":
        return 0.5 * x * math.erfc(-x / math.sqrt(2))
    w = 1.702 * x if formula == "quick" else 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    # x·σ(w) from the side that doesn't overflow
    return x / (1 + math.exp(-w)) if w >= 0 else x * math.exp(max(w, -800.0)) / (1 + math.exp(max(w, -800.0)))


def feed_forward(x, blocks, formula):
    """y of a stack of blocks (w1, b1, w2, b2), biases None or arrays; x and all weights are taken as float64."""
    y = np.asarray(x, np.float64)
    for w1, b1, w2, b2 in blocks:
        hidden = y @ np.asarray(w1, np.float64) + (0 if b1 is None else np.asarray(b1, np.float64))
        activated = np.array([gelu(value, formula) for value in hidden.ravel().tolist()], np.float64)
        y = activated.reshape(hidden.shape) @ np.asarray(w2, np.float64)
        y = y + (0 if b2 is None else np.asarray(b2, np.float64))
    return y
