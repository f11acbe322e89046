"""What the table says about a function, each found by evaluating it in float64 (the zero gradients in float32)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .activations import Activation, Array

POINTS = (-3.0, 0.0, 3.0)
SAMPLES = 1 << 20
# Odd, so that 0 is a point; wide enough for every dip and hump, and narrow enough that σ and tanh are not yet 0 or 1.
_GRID = np.linspace(-8, 8, 16_001)
_FAR = 1e6
_ORDERS = (1, 2, 3)


@dataclass(frozen=True)
class Properties:
    """Of one function.

    Attributes
    ----------
    low, high : float
        Infimum and supremum; ±inf where there is none.
    low_reached, high_reached : bool
        Whether some finite x has it.
    smooth : bool
        At 0: the first three derivatives from the left are those from the right.
    slopes_at_zero : tuple of float
        f′ from the left and from the right.
    falls_below : float or None
        None for a function that never falls; else it falls left of this x, and nowhere else.
    gradients : tuple of float
        f′ at `POINTS`.
    steepest : float
        Largest |f′|.
    zero_gradients : float
        Share of N(0,1) inputs in float32 whose gradient is exactly 0.
    """

    low: float
    high: float
    low_reached: bool
    high_reached: bool
    smooth: bool
    slopes_at_zero: tuple[float, float]
    falls_below: float | None
    gradients: tuple[float, ...]
    steepest: float
    zero_gradients: float


def properties(activation: Activation) -> Properties:
    """Find them."""
    low, low_reached = _extreme(activation, -1)
    high, high_reached = _extreme(activation, 1)
    slopes, smooth = _at_zero(activation)
    return Properties(
        low, high, low_reached, high_reached, smooth, slopes, _falls_below(activation),
        tuple(float(v) for v in _slope(activation, np.array(POINTS))),
        float(np.abs(_slope(activation, _GRID)).max()), _zero_gradients(activation),
    )  # fmt: skip


def _slope(activation: Activation, x: Array) -> Array:
    return activation.backward(np.ones_like(x), x)


def _extreme(activation: Activation, sign: int) -> tuple[float, bool]:
    """Supremum (sign 1) or infimum (−1), and whether it is reached."""
    ends = sign * activation.forward(np.array([-_FAR, _FAR]))
    # Near enough to linear there, if it does not level off: twice as far is clearly more.
    if (sign * activation.forward(np.array([-2 * _FAR, 2 * _FAR])) > ends + 1).any():
        return sign * math.inf, False
    limit = float(ends.max())
    best = int(np.argmax(sign * activation.forward(_GRID)))
    top = sign * float(activation.forward(_GRID[best : best + 1])[0])
    if 0 < best < _GRID.size - 1:
        top = max(top, _refined(activation, sign, float(_GRID[best - 1]), float(_GRID[best + 1])))
    return (sign * top + 0.0, True) if top >= limit else (sign * limit + 0.0, False)


def _refined(activation: Activation, sign: int, left: float, right: float) -> float:
    """Largest sign·f in a short interval, by grids that shrink: the last is 1e-9 wide."""
    for _ in range(3):
        x = np.linspace(left, right, 201)
        y = sign * activation.forward(x)
        best = int(np.argmax(y))
        left, right = float(x[max(best - 1, 0)]), float(x[min(best + 1, x.size - 1)])
    return float(y.max())


def _at_zero(activation: Activation) -> tuple[tuple[float, float], bool]:
    """One-sided slopes, and whether no derivative of `_ORDERS` jumps.

    The forward difference of order n over n + 1 points on either side estimates f⁽ⁿ⁾ with an error of the order of h.
    So the difference of left and right halves with h for a smooth function, and for a jump it stays.
    """
    smooth = True
    for order in _ORDERS:
        wide, narrow = (_jump(activation, order, h) for h in (2.0**-5, 2.0**-6))
        smooth &= abs(narrow) <= 0.75 * abs(wide) or abs(narrow) < 1e-6
    h = 2.0**-30
    left, middle, right = activation.forward(np.array([-h, 0.0, h]))
    return (round(float((middle - left) / h), 6), round(float((right - middle) / h), 6)), smooth


def _jump(activation: Activation, order: int, h: float) -> float:
    steps = np.arange(order + 1)
    right = np.diff(activation.forward(h * steps), order)[0]
    left = np.diff(activation.forward(h * (steps - order)), order)[0]
    return float((right - left) / h**order)


def _falls_below(activation: Activation) -> float | None:
    falling = _slope(activation, _GRID) < 0
    if not falling.any():
        return None
    last = int(np.flatnonzero(falling)[-1])
    if not falling[: last + 1].all() or last + 1 == _GRID.size:
        raise NotImplementedError(f"{activation.name} falls in more than one place")
    left, right = float(_GRID[last]), float(_GRID[last + 1])
    for _ in range(50):
        middle = (left + right) / 2
        if _slope(activation, np.array([middle]))[0] < 0:
            left = middle
        else:
            right = middle
    return right


def _zero_gradients(activation: Activation) -> float:
    x = np.random.default_rng(0).standard_normal(SAMPLES, np.float32)
    return float(np.mean(_slope(activation, x) == 0))
