"""What a call costs apart from arithmetic: the front door, the allocation of the result, an unfavourable layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import gelu_fast as gf

from . import data
from .contenders import Contender, Peer, aligned, load
from .timing import Effort, Timing, compare
from .work import FRONT_DOOR_NS, Column

Call = Callable[[], object]

_SIZES = (1, 64, 4096)


@dataclass(frozen=True)
class Pair:
    """Two ways to make the same call, timed in alternation.

    Attributes
    ----------
    name : str
    size, threads : int
    dear, cheap : Timing
        The way with the cost in question, and the way without.
    """

    name: str
    size: int
    threads: int
    dear: Timing
    cheap: Timing

    @property
    def cost(self) -> float:
        """Nanoseconds between the medians."""
        return self.dear.median - self.cheap.median

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name, "size": self.size, "threads": self.threads, "ns_with": self.dear.median,
            "ns_without": self.cheap.median, "cost_ns": self.cost,
            "spread_with": self.dear.spread, "spread_without": self.cheap.spread,
        }  # fmt: skip


def front_door(effort: Effort, sizes: Sequence[int] = _SIZES) -> list[Pair]:
    """``gelu`` and ``gelu_backward`` against the ufuncs below them, with and without ``out=``; target 500 ns."""
    pairs = []
    with gf.num_threads(1):
        for size in sizes:
            x, out = data.make(data.NORMAL, size), aligned(size, "f4")
            bare, bare_backward = gf.ufuncs.gelu, gf.ufuncs.gelu_backward
            for name, dear, cheap in (
                ("gelu(x)", partial(gf.gelu, x), partial(bare, x)),
                ("gelu(x, out=y)", partial(gf.gelu, x, out=out), partial(bare, x, out=out)),
                ("gelu_backward(dy, x)", partial(gf.gelu_backward, x, x), partial(bare_backward, x, x)),
                (
                    "gelu_backward(dy, x, out=y)",
                    partial(gf.gelu_backward, x, x, out=out),
                    partial(bare_backward, x, x, out=out),
                ),
            ):
                pairs.append(Pair(name, size, 1, *_compare(dear, cheap, effort, 1)))
    return pairs


def within_target(pair: Pair) -> bool:
    """Whether a front-door pair meets its target."""
    return pair.cost <= FRONT_DOOR_NS


def allocation(effort: Effort, columns: Sequence[Column], peers: Sequence[Peer]) -> list[Pair]:
    """The exact form without ``out=`` against with it: ours, and torch's where it is among `peers`."""
    pairs = []
    for column in columns:
        x, out = data.make(data.NORMAL, column.size), aligned(column.size, "f4")
        with gf.num_threads(column.threads):
            both = _compare(partial(gf.gelu, x), partial(gf.gelu, x, out=out), effort, column.threads)
            pairs.append(Pair("gelu_fast", column.size, column.threads, *both))
        torch_peer = next((peer for peer in peers if peer.name == "torch"), None)
        if torch_peer:
            torch = load("torch")
            gelu = torch.nn.functional.gelu
            tensor, tensor_out = torch.from_numpy(x), torch.from_numpy(out)
            with torch_peer.scope(column.threads):
                dear, cheap = partial(gelu, tensor), partial(gelu, tensor, out=tensor_out)
                both = _compare(dear, cheap, effort, column.threads)
                pairs.append(Pair("torch", column.size, column.threads, *both))
    return pairs


def layouts(effort: Effort, column: Column) -> list[Pair]:
    """The exact form of a view against the same number of elements in one block, both with ``out=`` in one block.

    NumPy hands strided vectors to the kernel whole, the others in pieces: these stay on one thread.
    """
    size, threads = column.size, column.threads
    x, out = data.make(data.NORMAL, size), aligned(size, "f4")
    width = 1024 if size % 1024 == 0 else size
    columns, swapped = np.zeros((size // width, 2 * width), "f4")[:, :width], x.astype(">f4")
    columns[...] = x.reshape(columns.shape)
    spread = np.zeros(2 * size, "f4")
    spread[::2] = x
    with gf.num_threads(threads):
        return [
            Pair(name, size, threads, *_compare(partial(gf.gelu, view, out=out.reshape(view.shape)),
                                                partial(gf.gelu, x, out=out), effort, threads))
            for name, view in (
                ("x[::2]", spread[::2]),
                (f"x[:, :{width:,}], rows of {2 * width:,}", columns),
                ("byte-swapped", swapped),
            )
        ]  # fmt: skip


def _compare(dear: Call, cheap: Call, effort: Effort, threads: int) -> list[Timing]:
    both = [Contender(name, call, lambda: np.empty(0)) for name, call in (("dear", dear), ("cheap", cheap))]
    return compare(both, effort, threads)
