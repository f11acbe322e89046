"""A small classifier in NumPy: `depth` hidden layers of one width, softmax, cross-entropy, Adam. float32 throughout.

All parameters stand in one array, all gradients in another, so that Adam is a dozen NumPy calls whatever the depth.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .activations import Activation, Array

WIDTH = PIECE = 64
# Adam's own defaults.
RATE, DECAY, SQUARE_DECAY, EPSILON = 1e-3, 0.9, 0.999, 1e-8


class Classifier:
    """The network and its optimiser.

    Parameters
    ----------
    activation : Activation
        After every layer but the last.
    depth : int
        Hidden layers.
    inputs, classes : int
    seed : int
        Of the weights: N(0, 2/fan-in), as He et al. have it, whatever the activation, so that all start alike.
    """

    def __init__(self, activation: Activation, depth: int, inputs: int, classes: int, seed: int) -> None:
        self._activation = activation
        sizes = [inputs, *[WIDTH] * depth, classes]
        shapes = list(pairwise(sizes))
        total = sum(rows * columns + columns for rows, columns in shapes)
        self._values, self._slopes, self._mean, self._square = np.zeros((4, total), np.float32)
        self._layers, self._layer_slopes = (_views(flat, shapes) for flat in (self._values, self._slopes))
        self._steps = 0
        rng = np.random.default_rng(seed)
        for weights, _ in self._layers:
            weights[...] = rng.standard_normal(weights.shape, np.float32) * np.float32(np.sqrt(2 / len(weights)))

    def step(self, x: Array, labels: Array) -> float:
        """One step of Adam on a batch; the mean cross-entropy before it."""
        before, after = self._forward(x)
        loss, slope = _cross_entropy(after.pop(), labels)
        for k in range(len(self._layers) - 1, -1, -1):
            weights = self._layers[k][0]
            weight_slope, bias_slope = self._layer_slopes[k]
            np.matmul(after[k].T, slope, out=weight_slope)
            slope.sum(axis=0, out=bias_slope)
            if k:
                slope = self._activation.backward(slope @ weights.T, before[k - 1])
        self._adam()
        return loss

    def accuracy(self, x: Array, labels: Array) -> float:
        """Share of right answers.

        In pieces: OpenBLAS runs products of up to 64 × 64 × 64 on one thread. Beyond, its threads would spin for
        longer than they work: all the trainings took five times the processor time on a busy machine.
        """
        right = 0
        for start in range(0, len(x), PIECE):
            scores = self._forward(x[start : start + PIECE])[1][-1]
            right += int(np.count_nonzero(scores.argmax(axis=1) == labels[start : start + PIECE]))
        return right / len(x)

    def _forward(self, x: Array) -> tuple[list[Array], list[Array]]:
        """What each activation received, and what each layer received, with the scores last."""
        before, after = [], [x]
        for weights, bias in self._layers[:-1]:
            before.append(after[-1] @ weights + bias)
            after.append(self._activation.forward(before[-1]))
        weights, bias = self._layers[-1]
        after.append(after[-1] @ weights + bias)
        return before, after

    def _adam(self) -> None:
        self._steps += 1
        slopes, mean, square = self._slopes, self._mean, self._square
        mean += np.float32(1 - DECAY) * (slopes - mean)
        square += np.float32(1 - SQUARE_DECAY) * (slopes * slopes - square)
        rate = RATE * np.sqrt(1 - SQUARE_DECAY**self._steps) / (1 - DECAY**self._steps)
        self._values -= np.float32(rate) * mean / (np.sqrt(square) + np.float32(EPSILON))


def _views(flat: Array, shapes: list[tuple[int, int]]) -> list[tuple[Array, Array]]:
    """Weights (in, out) and biases (out,) of each layer, as parts of `flat`."""
    layers, start = [], 0
    for rows, columns in shapes:
        middle, end = start + rows * columns, start + rows * columns + columns
        layers.append((flat[start:middle].reshape(rows, columns), flat[middle:end]))
        start = end
    return layers


def _cross_entropy(scores: Array, labels: Array) -> tuple[float, Array]:
    """Its mean, and the slope with respect to the scores."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    slope = np.exp(logs)
    slope[rows, labels] -= 1
    slope /= np.float32(len(labels))
    return float(-logs[rows, labels].mean()), slope
