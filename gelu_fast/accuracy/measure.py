"""One row per function and dtype: the largest error found, where, and the stated bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import mpmath as mp
import numpy as np

from gelu_fast.bounds import MISROUNDED, ULP
from gelu_fast.cpu.ufuncs import bfloat16

from .exact import PRECISION, exact
from .functions import FUNCTIONS, Function, available_isas, instruction_set
from .points import sample
from .rounding import exact_ulps
from .sweep import all_16_bit, dy_sample, misrounded, sweep, sweep_backward
from .tally import Tally, Worst

# Inputs per function: (default, full).
COUNTS = {"float32": (1 << 22, 1 << 26), "float64": (1 << 20, 12_000_000), "backward": (1 << 19, 1 << 22)}
_CHUNK = 1 << 22  # what is sampled at once


@dataclass(frozen=True)
class Row:
    """`error` is in ULP, or a number of misrounded inputs where the dtype has 16 bits; `x` (and `dy`) is the worst."""

    function: str
    dtype: str
    error: float
    bound: float
    x: float | None
    dy: float | None
    isa: str
    inputs: int

    @property
    def passed(self) -> bool:
        return self.error <= self.bound

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


def measure_all(full: bool = False, report: Callable[[Row, int], None] | None = None) -> list[Row]:
    """Sweep every function in every dtype on every instruction set.

    Parameters
    ----------
    full : bool
        12 million float64 and 67 million float32 inputs per function in place of 1 and 4 million. The 16-bit types
        are swept whole in any case.
    report : callable, optional
        Called with each row as it is done, and the number of rows to come in all.

    Returns
    -------
    list of Row
    """
    jobs = [(f, kind) for f in FUNCTIONS.values() for kind in _kinds(f)]
    rows = []
    for function, kind in jobs:
        rows.append(_row(function, kind, full))
        if report is not None:
            report(rows[-1], len(jobs))
    return rows


def _kinds(function: Function) -> list[str]:
    kinds = ["float32", "float64", "float16"] + (["bfloat16"] if bfloat16 is not None else [])
    return [*kinds, "backward float32", "backward float64"] if function.order == 1 else kinds


def _row(function: Function, kind: str, full: bool) -> Row:
    dtype = kind.split()[-1]
    if dtype.endswith("16"):
        return _row_16_bit(function, dtype)
    backward = kind != dtype
    count = COUNTS["backward" if backward else dtype][full]
    tallies = {isa: Tally() for isa in available_isas()}
    for seed, _ in enumerate(range(0, count, _CHUNK)):
        x = sample(function, dtype, min(count, _CHUNK), seed)
        if backward:
            x = x[np.isfinite(x)]
            found = sweep_backward(function, dy_sample(x, seed=seed), x, list(tallies))
        else:
            found = sweep(function, x, list(tallies))
        for isa, tally in found.items():
            tallies[isa].merge(tally)
    isa = max(tallies, key=lambda name: tallies[name].max.ulp)
    worst = tallies[isa].max
    return Row(
        function.backward.__name__ if backward else function.name, dtype, recheck(function, worst, dtype, isa),
        ULP["gelu_backward" if backward else function.kind, dtype], worst.x, worst.dy, isa, tallies[isa].count,
    )  # fmt: skip


def _row_16_bit(function: Function, dtype: str) -> Row:
    x = all_16_bit(bfloat16 if dtype == "bfloat16" else np.float16)
    wrong = misrounded(function, x, available_isas())
    isa = max(wrong, key=lambda name: (wrong[name].grave.size, wrong[name].inputs.size))
    grave, inputs = wrong[isa].grave, wrong[isa].inputs
    first = grave if grave.size else inputs
    error = np.inf if grave.size else inputs.size
    some = float(first[0]) if first.size else None
    return Row(function.name, dtype, error, MISROUNDED[function.kind, dtype], some, None, isa, x.size)


def recheck(function: Function, worst: Worst, dtype: str, isa: str) -> float:
    """The error at one point by mpmath alone; inf stays (a wrong nan, limit or sign of zero)."""
    if not np.isfinite(worst.ulp) or not np.isfinite(worst.x):
        return worst.ulp
    x = np.array([worst.x], dtype)
    with instruction_set(isa), mp.workprec(PRECISION):
        value = exact(worst.x, function.form, function.order)
        if worst.dy is None:
            return exact_ulps(float(function.ufunc(x)[0]), value, dtype)
        computed = function.backward(np.array([worst.dy], dtype), x)[0]
        return exact_ulps(float(computed), worst.dy * value, dtype, worst.dy)
