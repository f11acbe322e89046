"""The curves of a training: loss and test errors against epochs.

Laid out as `picture` is, and for the same reason: a column per family, GELU in grey beneath each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gelu_fast.pictures import FAINT, GREY, label_ends, require

from .activations import GELU, Array
from .picture import BAND, FAMILIES
from .styles import style
from .training import Run

# What is drawn of a run, and the least that is: no loss and no error has no place on a logarithmic scale.
_LOSS: tuple[str, Callable[[Run], Array], float] = ("training loss", lambda run: np.array(run.losses), 1e-4)
_WRONG: tuple[str, Callable[[Run], Array], float] = (
    "share of wrong answers\non test digits", lambda run: 1 - np.array(run.accuracies), 2e-3
)  # fmt: skip


def draw(runs: Sequence[Run]) -> Any:
    """The picture, a Matplotlib figure.

    Parameters
    ----------
    runs : sequence of Run
        All of as many epochs. Lines are geometric means over the seeds, bands reach from the least to the largest.
    """
    depths, present = list(dict.fromkeys(run.depth for run in runs)), {run.activation for run in runs}
    families = [(title, names) for title, names in FAMILIES if present & set(names)]
    rows = [(depth, *what) for what in (_LOSS, _WRONG) for depth in depths]
    figure = require("matplotlib.figure").Figure(figsize=(3.5 * len(families), 2.9 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(families), squeeze=False, sharex=True, sharey="row")
    colours = {name: GREY if name == GELU else style(name).colour for name in present}
    ends = []
    for line, (depth, what, pick, floor) in zip(panels, rows, strict=True):
        line[0].set_ylabel(f"{what}\n{depth} hidden layer{'s' if depth > 1 else ''}", fontsize=10)
        histories = {
            name: _drawn([pick(run) for run in runs if (run.depth, run.activation) == (depth, name)], floor)
            for name in present
        }
        if not any(np.isfinite(history).any() for history in histories.values()):
            line[0].set_ylim(floor, 10)  # all diverged at once: a logarithmic scale can't find its own
        for panel, (_, names) in zip(line, families, strict=True):
            ends.append((panel, _panel(panel, {name: histories[name] for name in (GELU, *names) if name in present})))
    for panel, (title, _) in zip(panels[0], families, strict=True):
        panel.set_title(title, loc="left", fontsize=12)
    for panel in panels[-1]:
        panel.set_xlabel("epoch")
    for panel, found in ends:  # only now are the scales final, a row having one for all
        label_ends(panel, found, colours, 0.085)
    seeds = len({run.seed for run in runs})
    over = f"Means of {seeds} seeds, bands from least to largest. " if seeds > 1 else ""
    figure.suptitle(f"The same classifier of digits, trained with each activation. {over}GELU is the broad grey line.",
                    x=0.01, ha="left", fontsize=13)  # fmt: skip
    return figure


def _drawn(histories: Sequence[Array], floor: float) -> Array:
    """Of shape (seeds, epochs), with a gap for what is not finite."""
    values = np.array(histories)
    return np.where(np.isfinite(values), np.maximum(values, floor), np.nan)


def _panel(panel: Any, histories: dict[str, Array]) -> dict[str, tuple[float, float]]:
    """Histories of shape (seeds, epochs); the last point of each line."""
    found = {}
    for number, (name, history) in enumerate(histories.items()):
        epochs = np.arange(1, history.shape[1] + 1)
        mean = np.exp(np.log(history).mean(axis=0))
        every = max(1, len(epochs) // 5)
        look, order = style(name), 1 if name == GELU else 3
        if name == GELU:
            panel.plot(epochs, mean, **BAND, zorder=order)
        else:
            panel.plot(epochs, mean, **look.line(), markevery=(number * every // 3, every), zorder=order)
        if len(history) > 1:
            panel.fill_between(epochs, history.min(axis=0), history.max(axis=0), lw=0, zorder=order - 1,
                               color=BAND["color"] if name == GELU else look.colour,
                               alpha=0.35 if name == GELU else 0.15)  # fmt: skip
        found[name] = float(len(epochs)), float(mean[-1])
        panel.set_xlim(0.5, max(len(epochs), 1.5))
    panel.set_yscale("log")
    panel.grid(color=FAINT, lw=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    return found

