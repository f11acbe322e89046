"""One style per activation, the same in every picture: told apart by dashes and markers where there is no colour."""

from __future__ import annotations

from gelu_fast.pictures import CYCLE, OURS, Style

STYLES = {
    "GELU": OURS,
    "GELU tanh": CYCLE[0],
    "GELU quick": CYCLE[1],
    "SiLU": CYCLE[2],
    "ReLU": CYCLE[3],
    "leaky ReLU": CYCLE[4],
    "sigmoid": CYCLE[6],
    "tanh": CYCLE[7],
}  # every name of `activations.ACTIVATIONS`


def style(name: str) -> Style:
    """Of an activation."""
    return STYLES[name]
