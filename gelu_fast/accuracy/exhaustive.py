"""Every float32 number through one function, on every instruction set: 2^32 inputs against the oracle.

The numbers go in order of their bits, in 256 units that are handed to worker processes; finished units are kept in a
file beside the result, so that an interrupted run goes on where it stood, if the kernels, the instruction sets and the
function are still the same. Where a whole block lies in a region in which the function is trivial (four fifths of all
numbers) the reference is that trivial function, which costs nothing; every result is compared all the same.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

import gelu_fast
from gelu_fast.bounds import NEAR_ROOT
from gelu_fast.cpu import ufuncs as cpu

from .functions import FUNCTIONS, Function, available_isas, instruction_set
from .oracle import oracle
from .rounding import ulps32
from .sweep import mark_wrong_zeros
from .tally import Tally, regions

Array = npt.NDArray[Any]

UNITS = 256
_UNIT = 1 << 24
_BLOCK = 1 << 15
# Below _SMALL: f = x/2, f' = 1/2, f'' = f''(0) to a relative 2^-43. Beyond _LARGE: x or -0, 1 or 0, 0, to far less
# than a smallest subnormal.
_SMALL = 2.0**-44
_LARGE = {"none": 16.0, "tanh": 12.0, "quick": 72.0}


def sweep_all(
    function: Function, directory: Path, workers: int | None = None, report: Callable[[int, float], None] | None = None
) -> dict[str, Any]:
    """All 2^32 float32 inputs.

    Parameters
    ----------
    function : Function
    directory : Path
        Takes ``NAME.json``, written under another name first; made if absent.
    workers : int, optional
        Processes; by default one per CPU this process may run on.
    report : callable, optional
        Called with the number of finished units (of `UNITS`) and the largest error so far.

    Returns
    -------
    dict
        What the file holds: function, versions, wall time and, by instruction set, the worst inputs of each region
        and the histogram of errors. A result of the same kernels that is there is given back as it is.
    """
    if (done := finished(function, directory)) is not None:
        return done
    directory.mkdir(parents=True, exist_ok=True)
    isas = available_isas()
    about = environment(function, isas)
    partial = directory / f"{function.name}.partial.json"
    state = _same(partial, about) or {**about, "units": [], "tallies": {}, "wall_s": 0.0}
    todo = [unit for unit in range(UNITS) if unit not in state["units"]]
    tallies = {isa: Tally.from_json(t) for isa, t in state["tallies"].items()}
    start, saved = time.monotonic(), time.monotonic()
    # spawn: a forked child must not meet another thread's locks, torch's for one.
    with _deaf_children():
        pool = multiprocessing.get_context("spawn").Pool(workers or _cpus(), _quiet)
    with pool:
        jobs = pool.imap_unordered(_unit, [(function.name, isas, unit, _UNIT) for unit in todo])
        for unit, found in jobs:
            for isa in isas:
                tallies.setdefault(isa, Tally()).merge(Tally.from_json(found[isa]))
            state["units"].append(unit)
            if report is not None:
                report(len(state["units"]), max(t.max.ulp for t in tallies.values()))
            if time.monotonic() - saved > 5 or len(state["units"]) == UNITS:
                saved = time.monotonic()
                state["wall_s"] += saved - start
                start = saved
                state["tallies"] = {isa: t.to_json() for isa, t in tallies.items()}
                write_json(partial, state)
    result = {**about, "wall_s": round(state["wall_s"], 1), "isa": {isa: t.to_json() for isa, t in tallies.items()}}
    write_json(directory / f"{function.name}.json", result)
    partial.unlink()
    return result


def environment(function: Function, isas: Sequence[str]) -> dict[str, Any]:
    """What a result depends on; a partial one that says otherwise is not gone on with."""
    return {
        "function": function.name, "dtype": "float32", "instruction_sets": list(isas),
        "gelu_fast": gelu_fast.__version__,
        "kernels_sha256": cpu.KERNELS_SHA256,
        "numpy": np.__version__, "scipy": scipy.__version__, "python": platform.python_version(),
        "machine": platform.machine(),
    }  # fmt: skip


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(data, indent=1) + "\n")
    temporary.replace(path)


def sweep_bits(function: Function, isas: Sequence[str], first: int, count: int) -> dict[str, Tally]:
    """The `count` numbers whose bits are `first` and up; both multiples of 2^15."""
    tallies = {isa: Tally() for isa in isas}
    for begin in range(first, first + count, _BLOCK):
        x = np.arange(begin, begin + _BLOCK, dtype=np.uint64).astype(np.uint32).view(np.float32)
        value, region = reference(function, x), None
        for isa in isas:
            with instruction_set(isa):
                computed = function.ufunc(x)
            error = ulps32(computed, value)
            mark_wrong_zeros(function, x, computed, error)
            if tallies[isa].worst and not error.any():  # most blocks
                tallies[isa].add_exact(x.size)
                continue
            if region is None:
                region = regions(x, np.abs(value) < 2.0**-126, function.root, NEAR_ROOT, function.order == 2)
            tallies[isa].add(x, error, region)
    return tallies


def reference(function: Function, x: Array) -> Array:
    """The oracle, or the trivial function where every number of the block is small, or large (x has one sign)."""
    size = np.abs(x)
    small, large = size.max() < _SMALL, size.min() > _LARGE[function.form]
    if not (small or large):  # so with a nan
        return oracle(x, function.form, function.order)
    positive = x[0] > 0
    if function.order == 0:
        scale = 0.5 if small else float(positive)
        return x.astype(np.float64) * scale
    if function.order == 1:
        return np.full(x.size, 0.5 if small else float(positive))
    return np.full(x.size, oracle(np.zeros(1, np.float32), function.form, 2)[0] if small else 0.0)


def _unit(job: tuple[str, list[str], int, int]) -> tuple[int, dict[str, Any]]:
    name, isas, unit, size = job
    return unit, {isa: t.to_json() for isa, t in sweep_bits(FUNCTIONS[name], isas, unit * size, size).items()}


@contextlib.contextmanager
def _deaf_children() -> Iterator[None]:
    """Ctrl-C reaches all processes of a terminal: those started in here ignore it, and their parent ends them."""
    if threading.current_thread() is not threading.main_thread():  # which alone may say so
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _quiet() -> None:
    gelu_fast.set_num_threads(1)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def finished(function: Function, directory: Path) -> dict[str, Any] | None:
    """The result that is there already, if it is of the same kernels."""
    return _same(directory / f"{function.name}.json", environment(function, available_isas()))


def _same(path: Path, about: dict[str, Any]) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    same = isinstance(found, dict) and all(found.get(key) == value for key, value in about.items())
    return found if same else None
