"""The functions under measurement by name, and the instruction sets they are measured on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gelu_fast import cpu_info, ufuncs
from gelu_fast.cpu import ufuncs as cpu

from .exact import FORMS, root


@dataclass(frozen=True)
class Function:
    """One of the nine: `kind` is its row in `gelu_fast.bounds`."""

    name: str
    kind: str
    form: str
    order: int

    @property
    def ufunc(self) -> np.ufunc:
        found = getattr(ufuncs, self.name)
        assert isinstance(found, np.ufunc)
        return found

    @property
    def backward(self) -> np.ufunc:
        """dy times the first derivative of the same form."""
        found = getattr(ufuncs, _stem(self.form) + "_backward")
        assert isinstance(found, np.ufunc)
        return found

    @property
    def root(self) -> float | None:
        """The negative root of a derivative."""
        return float(root(self.form, self.order)) if self.order else None


def _stem(form: str) -> str:
    return "gelu" if form == "none" else f"gelu_{form}"


_SUFFIX = ("", "_grad", "_grad2")
FUNCTIONS = {
    f.name: f
    for f in (
        Function(_stem(form) + _SUFFIX[order], "gelu" + _SUFFIX[order], form, order)
        for order in (0, 1, 2)
        for form in FORMS
    )
}


def available_isas() -> list[str]:
    """Every instruction set this CPU runs, best first."""
    return list(cpu_info()["available"])


@contextmanager
def instruction_set(name: str) -> Iterator[None]:
    """Use it for a while, in the whole process."""
    before = str(cpu_info()["isa"])
    cpu._select_isa(name)
    try:
        yield
    finally:
        cpu._select_isa(before)
