"""Throughput against size, with the copy line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..pictures import CYCLE, FAINT, GREY, Style, label_ends, require
from ..pictures import OURS as OUR_STYLE
from .cells import Cell
from .contenders import COPY, OUR_UFUNC, OURS

_COPY_STYLE = Style(GREY, "-", "", 1.0)


def draw(sweep: Sequence[Cell], title: str) -> Any:
    """One panel per work and thread count.

    Parameters
    ----------
    sweep : sequence of Cell
    title : str
        The machine.

    Returns
    -------
    matplotlib.figure.Figure
    """
    works = list(dict.fromkeys(cell.work for cell in sweep))
    threads = sorted({cell.column.threads for cell in sweep})
    shape = len(works), len(threads)
    figure = require("matplotlib.figure").Figure(figsize=(7.2 * shape[1], 4.6 * shape[0]), layout="constrained")
    panels = figure.subplots(*shape, squeeze=False, sharex=True, sharey="row")
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    names = list(dict.fromkeys(r.name for c in sweep for r in c.rows if r.timing and r.name != OUR_UFUNC))
    styles = _styles(names)
    colours = {name: look.colour for name, look in styles.items()}
    ends = []
    for work, line in zip(works, panels, strict=True):
        for count, panel in zip(threads, line, strict=True):
            cells = [c for c in sweep if c.work == work and c.column.threads == count]
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
            ends.append((panel, _lines(panel, cells, styles)))
            panel.set(xlabel="elements", ylabel="10⁹ elements a second")
            panel.set_title(f"{work.name}, {count} thread{'s' if count > 1 else ''}", fontsize=11, loc="left")
            panel.grid(True, which="major", color=FAINT, lw=0.6)
            panel.set_axisbelow(True)
            panel.spines[["top", "right"]].set_visible(False)
    for panel, found in ends:  # only now are the scales final, a row having one for all
        label_ends(panel, found, colours, 0.062)
    return figure


def _styles(names: Sequence[str]) -> dict[str, Style]:
    others = [name for name in names if name not in (OURS, COPY)]
    return {OURS: OUR_STYLE, COPY: _COPY_STYLE} | {n: CYCLE[i % len(CYCLE)] for i, n in enumerate(others)}


def _lines(panel: Any, cells: Sequence[Cell], styles: dict[str, Style]) -> dict[str, tuple[float, float]]:
    """Draw; the last point of each line."""
    found: dict[str, tuple[float, float]] = {}
    for name, look in styles.items():
        points = [(c.column.size, c.column.size / ns) for c in cells if (ns := c.nanoseconds(name))]
        if points:
            panel.plot(*zip(*points, strict=True), **look.line(), label=name, zorder=4 if name == OURS else 3)
            found[name] = points[-1]
    return found

