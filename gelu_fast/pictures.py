"""Pictures: styles that survive a grey printer, and the same bytes for the same data.

Shared by `compare`, `bench` and `accuracy`. Matplotlib loads when a picture is drawn, and never through pyplot: there
is no backend to choose, no display and no state.
"""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .output_files import check_file, check_folder, check_parent

FORMATS = ("png", "svg", "pdf")
GREY, FAINT = "#666666", "#dddddd"
# What keeps a file the same from run to run: no date, and ids that are not random.
_METADATA: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


@dataclass(frozen=True)
class Style:
    """A line that is known by colour, by dashes and by marker, each alone.

    Parameters
    ----------
    colour : str
    dashes : str or tuple
        As Matplotlib's ``linestyle``.
    marker : str
    width : float
    """

    colour: str
    dashes: Any
    marker: str
    width: float = 1.6

    def line(self) -> dict[str, Any]:
        """Keyword arguments of ``Axes.plot``."""
        return {
            "color": self.colour, "linestyle": self.dashes, "linewidth": self.width, "marker": self.marker,
            "markersize": 4.5, "markerfacecolor": "white", "markeredgecolor": self.colour, "markeredgewidth": 1.1,
        }  # fmt: skip


# After Okabe and Ito's colours, which stay apart for the colour-blind, the light ones darkened, since a grey printer
# makes yellow and pink faint. In grey colours are all alike: dashes and markers tell them apart.
CYCLE = (
    Style("#D55E00", (0, (6, 2)), "s"),
    Style("#009E73", (0, (1, 1.2)), "^"),
    Style("#A8467C", (0, (5, 1.5, 1, 1.5)), "D"),
    Style("#0072B2", (0, (3, 1, 1, 1, 1, 1)), "v"),
    Style("#A87000", (0, (9, 3)), "P"),
    Style("#2E86B8", (0, (2, 2)), "X"),
    Style("#4D4D4D", (0, (4, 1)), "<"),
    Style("#6A3D9A", (0, (8, 2, 2, 2)), ">"),
    Style("#8C564B", (0, (1, 3)), "h"),
)
OURS = Style("black", "-", "o", 2.4)


def require(module: str, extra: str = "plot") -> Any:
    """The module, or an ImportError that says how to get it.

    Raises
    ------
    ImportError
        Naming the missing package and the extra of gelu-fast that brings it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        names = {"sklearn": "scikit-learn", "matplotlib": "Matplotlib"}
        package = module.partition(".")[0]
        raise ImportError(
            f"this needs {names.get(package, package)}, which can't be imported ({error}): "
            f"pip install 'gelu-fast[{extra}]'",
            name=package,
        ) from error


def file_format(path: Path, option: str) -> str:
    """By suffix.

    Raises
    ------
    ValueError
        If it is none that is written here; `option` begins the message.
    """
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in FORMATS:
        known = " or ".join(f".{name}" for name in FORMATS)
        raise ValueError(f"{option}: expected a name ending in {known}, got {path.name!r}")
    return suffix


def goals(outputs: Sequence[Path], stem: str, overwrite: bool) -> list[Path]:
    """The files that `outputs` mean, each of which may be written.

    Parameters
    ----------
    outputs : sequence of Path
        Picture files by suffix, or folders: those get ``stem.png`` and ``stem.svg`` and are made when written.
    stem : str
    overwrite : bool

    Raises
    ------
    ValueError, FileExistsError, FileNotFoundError, NotADirectoryError
    """
    found: dict[Path, None] = {}
    for output in outputs:
        if output.suffix and not output.is_dir():
            file_format(output, "--output")
            check_parent(output, "--output")
            found[output] = None
        else:
            check_folder(output, "--output")
            found |= dict.fromkeys([output / f"{stem}.png", output / f"{stem}.svg"])
    for path in found:
        check_file(path, "--output", overwrite)
    return list(found)


def render(figure: Any, kind: str) -> bytes:
    """A figure's file in one of `FORMATS`; the same data give the same bytes."""
    buffer = io.BytesIO()
    # Text as text: searchable, and small.
    with require("matplotlib").rc_context({"svg.hashsalt": "gelu_fast", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, dpi=150, bbox_inches="tight", metadata=_METADATA[kind])
    return buffer.getvalue()


def label_ends(panel: Any, ends: Mapping[str, tuple[float, float]], colours: Mapping[str, str], gap: float) -> None:
    """Names at the right edge, each tied to its line's end: a legend would be a puzzle of dashes.

    Parameters
    ----------
    panel : matplotlib.axes.Axes
        Its scales must be final: where panels share one, all must have been drawn.
    ends : mapping of str to (float, float)
        The last point of each line.
    colours : mapping of str to str
    gap : float
        Least distance of two names, of the panel's height.
    """
    panel.get_ylim()  # settles the scales, which transData alone does not
    to_panel = panel.transData + panel.transAxes.inverted()
    starts = [to_panel.transform(end) for end in ends.values()]
    places = spread([min(max(float(y), 0.0), 1.0) if math.isfinite(y) else 1.0 for _, y in starts], gap, 0.0, 1.0)
    for name, (x, y), place in zip(ends, starts, places, strict=True):
        if math.isfinite(y):
            panel.plot([x + 0.015, max(x, 1.0) + 0.06], [y, place], transform=panel.transAxes, color=colours[name],
                       lw=0.9, clip_on=False)  # fmt: skip
        panel.text(1.07, place, name, transform=panel.transAxes, va="center", fontsize=9.5)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels as near to `wanted` as they can be when `gap` must lie between any two.

    Parameters
    ----------
    wanted : sequence of float
    gap : float
    low, high : float
        Between these all must lie; the gap shrinks if they can't.

    Returns
    -------
    list of float
        In the order of `wanted`.
    """
    if len(wanted) > 1:
        gap = min(gap, (high - low) / (len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    # Blocks of labels that touch: each stands at the mean of what its members want, and merges with one it meets.
    blocks: list[tuple[list[int], float]] = []
    for i in order:
        members = [i]
        while True:
            width = gap * (len(members) - 1)
            start = sum(wanted[m] - gap * k for k, m in enumerate(members)) / len(members)
            start = min(max(start, low), high - width)
            if not blocks or blocks[-1][1] + gap * len(blocks[-1][0]) <= start + 1e-12:
                break
            members = blocks.pop()[0] + members
        blocks.append((members, start))
    places = [0.0] * len(wanted)
    for members, start in blocks:
        for k, m in enumerate(members):
            places[m] = start + gap * k
    return places
