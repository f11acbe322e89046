"""The same small classifier trained on scikit-learn's digits with each activation, at two depths, from several seeds.

Everything but the activation is the same: initial weights, order of the batches, rate. No activation gets a rate or an
initialisation of its own, and no decay, normalisation or skip connections: this compares activations, not recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gelu_fast.pictures import require

from .activations import ACTIVATIONS, Activation, Array
from .network import PIECE, Classifier

DEPTHS = (2, 12)
EPOCHS, SEEDS = 40, 3
BATCH = PIECE
_TEST = 360  # of 1,797 digits


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes
    ----------
    activation : str
    depth, seed : int
    losses : list of float
        Mean cross-entropy over the batches of each epoch, each before its step.
    accuracies : list of float
        Share of right answers on the test digits after each epoch.
    """

    activation: str
    depth: int
    seed: int
    losses: list[float]
    accuracies: list[float]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Digits:
    """Images of 64 pixels, scaled to [0, 1], and their labels."""

    x: Array
    labels: Array
    test_x: Array
    test_labels: Array


def digits() -> Digits:
    """scikit-learn's digits by a fixed split; ImportError without scikit-learn."""
    data = require("sklearn.datasets", "compare").load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    x, labels = (data.data[order] / 16).astype(np.float32), data.target[order]
    return Digits(x[_TEST:], labels[_TEST:], x[:_TEST], labels[:_TEST])


def train(activation: Activation, depth: int, seed: int, data: Digits, epochs: int,
          show: Callable[[], None] = lambda: None) -> Run:  # fmt: skip
    """Train once; the same arguments give the same numbers.

    Parameters
    ----------
    activation : Activation
    depth : int
    seed : int
        Of the weights and of the batches.
    data : Digits
    epochs : int
    show : callable
        Called after each epoch.
    """
    network = Classifier(activation, depth, data.x.shape[1], 10, seed)
    rng = np.random.default_rng((seed, 1))
    losses, accuracies = [], []
    # A network that diverges is a result, not an error: its loss is nan or inf from there on.
    with np.errstate(all="ignore"):
        for _ in range(epochs):
            order = rng.permutation(len(data.x))
            batches = [order[start : start + BATCH] for start in range(0, len(order) - BATCH + 1, BATCH)]
            losses.append(float(np.mean([network.step(data.x[b], data.labels[b]) for b in batches])))
            accuracies.append(network.accuracy(data.test_x, data.test_labels))
            show()
    return Run(activation.name, depth, seed, losses, accuracies)


def train_all(
    epochs: int = EPOCHS, seeds: int = SEEDS, depths: Sequence[int] = DEPTHS,
    activations: Sequence[Activation] = tuple(ACTIVATIONS.values()),
    show: Callable[[Activation, int, int], None] = lambda activation, depth, seed: None,
) -> list[Run]:  # fmt: skip
    """Every activation at every depth from every seed.

    Parameters
    ----------
    epochs, seeds : int
    depths : sequence of int
    activations : sequence of Activation
    show : callable
        Called after each epoch with the activation, the depth and the seed.

    Returns
    -------
    list of Run
        By depth, then by activation, then by seed.
    """
    data = digits()
    return [
        train(a, depth, seed, data, epochs, lambda a=a, depth=depth, seed=seed: show(a, depth, seed))  # type: ignore[misc]
        for depth in depths for a in activations for seed in range(seeds)
    ]  # fmt: skip
