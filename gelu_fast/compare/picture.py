"""Functions, derivatives and distances from GELU in one picture.

Eight curves in one panel can't be told apart, with or without colour: GELU's three forms coincide, and to the right of
0 so do ReLU and SiLU. So each family has a column of its own, with GELU beneath it as a broad grey band, and the last
row says by how much the family differs from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gelu_fast.pictures import FAINT, require

from .activations import ACTIVATIONS, GELU, Activation, Array
from .styles import style

FAMILIES = (
    ("The forms of GELU", ("GELU tanh", "GELU quick")),
    ("SiLU", ("SiLU",)),
    ("ReLU", ("ReLU", "leaky ReLU")),
    ("Sigmoids", ("sigmoid", "tanh")),
)
ROWS = ("f(x)", "f′(x)", "|f(x) − GELU(x)|")
_X = np.linspace(-4, 4, 1601)
_FLOOR = 1e-5
BAND = {"color": "#c4c4c4", "linewidth": 5.5, "solid_capstyle": "butt"}
# Where a label stands, (x, y) in the panel's own units, and the x of the point on the curve that it belongs to: one of
# the curve's own markers, which is what tells two that coincide apart.
_LABELS: dict[tuple[int, str], tuple[float, float, float]] = {
    (0, "GELU tanh"): (-3.7, 1.9, 1.0), (0, "GELU quick"): (-3.7, 1.0, -1.8),
    (0, "SiLU"): (-3.4, 1.1, -2.2),
    (0, "ReLU"): (-2.6, 1.8, 1.0), (0, "leaky ReLU"): (-3.7, -0.75, -2.6),
    (0, "sigmoid"): (-3.5, 0.85, -1.4), (0, "tanh"): (-2.6, -0.5, -1.0),
    (1, "GELU tanh"): (-3.7, 0.85, -0.6), (1, "GELU quick"): (0.8, 0.35, 2.2),
    (1, "SiLU"): (1.3, 0.45, 1.0),
    (1, "ReLU"): (-3.1, 0.7, -1.4), (1, "leaky ReLU"): (0.6, 0.3, -0.2),
    (1, "sigmoid"): (-3.7, 0.6, -2.2), (1, "tanh"): (1.7, 0.75, 0.6),
    (2, "GELU tanh"): (1.1, 2.5e-5, 1.0), (2, "GELU quick"): (-1.1, 2e-1, 0.6),
    (2, "SiLU"): (-3.3, 3e-3, -2.2),
    (2, "ReLU"): (-2.0, 2e-4, -3.0), (2, "leaky ReLU"): (-3.7, 6e-1, -3.4),
    (2, "sigmoid"): (-3.2, 2e-3, -3.0), (2, "tanh"): (-1.6, 2e-4, -0.2),
}  # fmt: skip
_GELU_LABEL = ((0.7, -0.6, -0.55), (-3.6, 0.3, -2.3))


def draw() -> Any:
    """The picture, a Matplotlib figure; ImportError without Matplotlib."""
    figure = require("matplotlib.figure").Figure(figsize=(13.5, 9), layout="constrained")
    panels = figure.subplots(len(ROWS), len(FAMILIES), sharex=True, sharey="row",
                             gridspec_kw={"height_ratios": (1.15, 1, 0.9)})  # fmt: skip
    for column, (title, names) in enumerate(FAMILIES):
        panels[0][column].set_title(title, loc="left", fontsize=12)
        for row, panel in enumerate(panels[:, column]):
            _panel(panel, row, names)
            if not column:
                panel.set_ylabel(ROWS[row], fontsize=11)
        panels[-1][column].set_xlabel("x")
    figure.suptitle("GELU, x·Φ(x), is the broad grey line in every column", x=0.01, ha="left", fontsize=13)
    return figure


def _panel(panel: Any, row: int, names: tuple[str, ...]) -> None:
    exact = ACTIVATIONS[GELU]
    if row < 2:
        panel.plot(_X, _curve(exact, row), zorder=1, **BAND)
        _label(panel, "GELU", _GELU_LABEL[row], _X, _curve(exact, row), "#6a6a6a")
        panel.axhline(0, color="black", lw=0.5, zorder=0)
        panel.axvline(0, color="black", lw=0.5, zorder=0)
        panel.set_ylim((-1.15, 2.6) if row == 0 else (-0.2, 1.2))
    else:
        panel.set(yscale="log", ylim=(_FLOOR, 5))
    for number, name in enumerate(names):
        # Markers of two curves that coincide don't fall on each other.
        curve, look = _curve(ACTIVATIONS[name], row), style(name)
        panel.plot(_X, curve, **look.line(), markevery=(40 + 80 * number, 160), zorder=3)
        _label(panel, name, _LABELS[row, name], _X, curve, look.colour)
    panel.set_xlim(-4, 4)
    panel.grid(color=FAINT, lw=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _curve(activation: Activation, row: int) -> Array:
    if row == 1:
        slope = activation.backward(np.ones_like(_X), _X)
        # A step is no line: broken where f′ jumps.
        return np.where(np.abs(np.diff(slope, prepend=slope[0])) > 0.5, np.nan, slope)
    value = activation.forward(_X)
    if row == 0:
        return value
    apart = np.abs(value - ACTIVATIONS[GELU].forward(_X))
    return np.where(apart > _FLOOR / 10, apart, np.nan)


def _label(panel: Any, text: str, place: tuple[float, float, float], x: Array, curve: Array, colour: str) -> None:
    left, bottom, point = place
    good = np.isfinite(curve)
    tip = point, float(np.interp(point, x[good], curve[good]))
    panel.annotate(text, tip, (left, bottom), color="black", fontsize=10, va="center", zorder=5,
                   arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.9, "shrinkA": 1, "shrinkB": 2},
                   bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.85})  # fmt: skip
