"""Time of each activation in relation to ReLU's: one process, in turns, float32, one thread, answers checked first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

import gelu_fast as gf
from gelu_fast.bench.contenders import Contender, aligned
from gelu_fast.bench.timing import Effort, compare

from .activations import ACTIVATIONS, RELU, Activation, Array
from .reference import TOLERANCE, largest_error

# In the second-level cache with room for a few arrays of its size, as a layer's activations in a small batch are.
SIZE = 1 << 15
_EFFORT = Effort(rounds=15, turn=1e-3)


class WrongAnswerError(Exception):
    """A function is not what it should be, and nothing was timed."""


@dataclass(frozen=True)
class Cost:
    """Of one activation.

    Attributes
    ----------
    forward, backward : float
        Nanoseconds per element, median of the turns.
    forward_ratio, backward_ratio : float
        To ReLU's in the same turns.
    spread : float
        The larger interquartile range over the median of the two.
    error : float
        The largest found, as `reference.largest_error` says.
    """

    forward: float
    backward: float
    forward_ratio: float
    backward_ratio: float
    spread: float
    error: float


def costs(activations: Sequence[Activation] = tuple(ACTIVATIONS.values()), effort: Effort = _EFFORT) -> list[Cost]:
    """Check all, then time all.

    Parameters
    ----------
    activations : sequence of Activation
        With ReLU among them.
    effort : Effort

    Returns
    -------
    list of Cost
        In the same order.

    Raises
    ------
    WrongAnswerError
    """
    rng = np.random.default_rng(0)
    x, dy = aligned(SIZE, np.float32), aligned(SIZE, np.float32)
    x[...], dy[...] = rng.standard_normal(SIZE, np.float32), rng.standard_normal(SIZE, np.float32)
    forward, backward = ([aligned(SIZE, np.float32) for _ in activations] for _ in range(2))
    errors = [_checked(a, x, y, dy, dx) for a, y, dx in zip(activations, forward, backward, strict=True)]
    with gf.num_threads(1):
        turns = compare(
            [_contender(a.name, partial(a.forward, x, out=y), y) for a, y in zip(activations, forward, strict=True)]
            + [_contender(a.name, partial(a.backward, dy, x, out=y), y)
               for a, y in zip(activations, backward, strict=True)],
            effort,
        )  # fmt: skip
    ahead, back = turns[: len(activations)], turns[len(activations) :]
    relu = next(i for i, a in enumerate(activations) if a.name == RELU)
    return [
        Cost(f.median / SIZE, b.median / SIZE, f.median / ahead[relu].median, b.median / back[relu].median,
             max(f.spread, b.spread), error)
        for f, b, error in zip(ahead, back, errors, strict=True)
    ]  # fmt: skip


def _contender(name: str, call: partial[Array], out: Array) -> Contender:
    return Contender(name, call, lambda: out)


def _checked(activation: Activation, x: Array, y: Array, dy: Array, dx: Array) -> float:
    activation.forward(x, out=y)
    activation.backward(dy, x, out=dx)
    error = largest_error(activation, x, y, dy, dx)
    if not error <= TOLERANCE:
        raise WrongAnswerError(
            f"{activation.name} is wrong by {error:.1e}, allowed are {TOLERANCE:.0e}; nothing was timed"
        )
    return error
