"""Throughput against size, with the copy line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .cells import Cell
from .contenders import COPY, OUR_UFUNC, OURS, load
from .report import write

_FORMATS = ("png", "svg", "pdf")


def file_format(path: Path) -> str:
    """By suffix.

    Raises
    ------
    ValueError
        If it is none that is written here.
    """
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in _FORMATS:
        raise ValueError(f"--plot: expected a name ending in .{', .'.join(_FORMATS)}, got {path.name!r}")
    return suffix


def draw(path: Path, sweep: Sequence[Cell], title: str) -> None:
    """One panel per work and thread count.

    Parameters
    ----------
    path : Path
        Its suffix chooses the format.
    sweep : sequence of Cell
    title : str
        The machine.
    """
    kind = file_format(path)
    # Without pyplot: no backend, no global state.
    figure_module = load("matplotlib.figure")
    works = list(dict.fromkeys(cell.work for cell in sweep))
    threads = sorted({cell.column.threads for cell in sweep})
    shape = len(works), len(threads)
    figure = figure_module.Figure(figsize=(6.4 * shape[1], 4.2 * shape[0]), layout="constrained")
    panels = figure.subplots(*shape, squeeze=False, sharex=True)
    figure.suptitle(title, fontsize=10)
    names = list(dict.fromkeys(r.name for c in sweep for r in c.rows if r.timing and r.name != OUR_UFUNC))
    colours = {name: f"C{i}" for i, name in enumerate(n for n in names if n not in (OURS, COPY))}
    for work, line in zip(works, panels, strict=True):
        for count, panel in zip(threads, line, strict=True):
            cells = [c for c in sweep if c.work == work and c.column.threads == count]
            for name in names:
                points = [(c.column.size, c.column.size / ns) for c in cells if (ns := c.nanoseconds(name))]
                if points:
                    style = "--" if name == COPY else "-"
                    colour = {OURS: "black", COPY: "grey"}.get(name) or colours[name]
                    width = 2.4 if name == OURS else 1.2
                    panel.plot(*zip(*points, strict=True), style, color=colour, linewidth=width, label=name)
            panel.set(xscale="log", yscale="log", xlabel="elements", ylabel="Gelem/s")
            panel.set_xscale("log", base=2)
            panel.set_title(f"{work.name}, {count} thread{'s' if count > 1 else ''}", fontsize=10)
            panel.grid(True, which="major", alpha=0.3)
            panel.legend(fontsize=7)
    write(path, lambda file: figure.savefig(file, format=kind, dpi=120))
