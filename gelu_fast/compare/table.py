"""Rows for a terminal, and their JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from .activations import Activation
from .cost import Cost
from .properties import POINTS, Properties
from .training import Run

Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]  # heads, rows
_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 16


def shapes(activations: Sequence[Activation], found: Sequence[Properties]) -> Rows:
    """What each function is."""
    heads = ("", "formula", "range", "smooth at 0", "monotone")
    return heads, [
        (a.name, a.formula, _range(p), _smooth(p), _monotone(p)) for a, p in zip(activations, found, strict=True)
    ]


def gradients(activations: Sequence[Activation], found: Sequence[Properties], spent: Sequence[Cost]) -> Rows:
    """What its gradient is, and what it costs."""
    heads = ("", *[f"f′({_number(x)})" for x in POINTS], "largest", "exactly 0", "cost", "of backward")
    return heads, [
        (a.name, *[f"{g:.4f}".replace("-", "−") for g in p.gradients], f"{p.steepest:.3f}",
         f"{p.zero_gradients:.1%}", f"{c.forward_ratio:.2f}×", f"{c.backward_ratio:.2f}×")
        for a, p, c in zip(activations, found, spent, strict=True)
    ]  # fmt: skip


def trainings(runs: Sequence[Run]) -> Rows:
    """One row per depth and activation: how it ended over the seeds, and its loss by epoch as bars."""
    heads = ("hidden layers", "", "right on test digits", "least", "largest", "loss", "loss by epoch")
    rows: list[tuple[str, ...]] = []
    for depth, name in dict.fromkeys((run.depth, run.activation) for run in runs):
        same = [run for run in runs if (run.depth, run.activation) == (depth, name)]
        ends = [run.accuracies[-1] for run in same]
        losses = np.mean([run.losses for run in same], axis=0)
        rows.append((
            str(depth), name, f"{np.mean(ends):.1%}", f"{min(ends):.1%}", f"{max(ends):.1%}", f"{losses[-1]:.4f}",
            _bars([float(v) for v in losses]),
        ))  # fmt: skip
    return heads, rows


def to_dict(activations: Sequence[Activation], found: Sequence[Properties], spent: Sequence[Cost]) -> dict[str, Any]:
    """Everything, ready for JSON: infinities as null, times in nanoseconds per element."""
    return {
        a.name: {"formula": a.formula} | _finite(asdict(p)) | {"gradients": dict(zip(map(str, POINTS), p.gradients,
                 strict=True)), "cost": asdict(c)}
        for a, p, c in zip(activations, found, spent, strict=True)
    }  # fmt: skip


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def _number(value: float, digits: int = 0) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.{digits}f}".replace("-", "−")


def _range(found: Properties) -> str:
    digits = [0 if math.isinf(v) or v == round(v) else 4 for v in (found.low, found.high)]
    low, high = _number(found.low, digits[0]), _number(found.high, digits[1])
    return f"{'[' if found.low_reached else '('}{low}, {high}{']' if found.high_reached else ')'}"


def _smooth(found: Properties) -> str:
    if found.smooth:
        return "yes"
    left, right = (f"{slope:g}" for slope in found.slopes_at_zero)
    return f"no, slope {left}, then {right}"


def _monotone(found: Properties) -> str:
    return "yes" if found.falls_below is None else f"no, falls until x = {_number(found.falls_below, 3)}"


def _bars(values: Sequence[float]) -> str:
    """Of the first value, in eighths; what is not finite is a cross."""
    picked = [values[i] for i in np.linspace(0, len(values) - 1, min(len(values), _COLUMNS)).astype(int)]
    top = max((v for v in picked if math.isfinite(v)), default=0.0) or 1.0
    return "".join(_BARS[min(int(v / top * 8), 7)] if math.isfinite(v) else "×" for v in picked)
