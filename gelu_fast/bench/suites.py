"""The short and the full mode: which comparisons are made, within which time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gelu_fast as gf

from . import data, machine
from .cells import Cell, measure
from .contenders import Peer
from .costs import Pair, allocation, front_door, layouts
from .timing import FULL, SHORT, Effort
from .work import COLUMNS, EXACT, EXACT_BACKWARD, MIDDLE, QUICK, TANH, TANH_BACKWARD, WORKS, Column, Work

Say = Callable[[str], None]
_SWEEP = tuple(1 << k for k in range(6, 26))
# Never the best at any size, and slow enough to take most of the time: left out of the short sweep.
_SLOW_PEERS = ("SciPy x·ndtr(x)", "Numba, math.erf", "torch.compile")


@dataclass
class Results:
    """Everything that one run found.

    Attributes
    ----------
    mode : {"short", "full"}
    machine : dict
    absent : dict of str to str
        Peers and data that could not take part, and why.
    left_out : list of str
        What the short mode skips.
    cells, data_cells, sweep : list of Cell
        The target table's; one work over all data; throughput against size.
    front_door, allocation, layouts : list of Pair
    seconds : float
    """

    mode: str
    machine: dict[str, Any]
    absent: dict[str, str]
    left_out: list[str] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    data_cells: list[Cell] = field(default_factory=list)
    sweep: list[Cell] = field(default_factory=list)
    front_door: list[Pair] = field(default_factory=list)
    allocation: list[Pair] = field(default_factory=list)
    layouts: list[Pair] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def wrong(self) -> list[str]:
        """Answers of ours that break their bound."""
        lines = [line for cell in (*self.cells, *self.data_cells, *self.sweep) for line in cell.wrong]
        return list(dict.fromkeys(lines))


@dataclass(frozen=True)
class Plan:
    """What to measure; the modes are two of these, and a test makes its own.

    Parameters
    ----------
    mode : str
    effort, sweep_effort : Effort
    works, columns, data_works, data_names, data_column
        The target table is works by columns on N(0,1); every data work sees all data in one column.
    compiled : sequence of Work
        Those for which peers that compile for seconds take part.
    sweep_works, sweep_sizes, sweep_threads
        Throughput against size.
    sweep_without : sequence of str
        Peers left out of it.
    """

    mode: str
    effort: Effort
    sweep_effort: Effort = SHORT
    works: Sequence[Work] = WORKS
    columns: Sequence[Column] = COLUMNS
    data_works: Sequence[Work] = (EXACT,)
    data_names: Sequence[str] = data.DATA
    data_column: Column = MIDDLE
    compiled: Sequence[Work] = ()
    sweep_works: Sequence[Work] = ()
    sweep_sizes: Sequence[int] = _SWEEP
    sweep_threads: Sequence[int] = (1, 2)
    sweep_without: Sequence[str] = ()


def plan(mode: str, sweep: bool) -> Plan:
    """The plan of a mode; the short one sweeps over sizes only if `sweep` (a plot was asked for)."""
    if mode == "full":
        forward = (EXACT, TANH, QUICK)
        return Plan(
            mode,
            FULL,
            data_works=(*forward, EXACT_BACKWARD, TANH_BACKWARD),
            compiled=WORKS,
            sweep_works=(*forward, EXACT_BACKWARD),
            sweep_without=("torch.compile",),
        )
    return Plan(
        mode,
        SHORT,
        compiled=(EXACT, EXACT_BACKWARD),
        sweep_works=(EXACT,) if sweep else (),
        sweep_sizes=(*_SWEEP[::2], _SWEEP[-1]),
        sweep_without=_SLOW_PEERS,
    )


def execute(wanted: Plan, peers: Sequence[Peer], absent: dict[str, str], say: Say) -> Results:
    """Run a plan.

    Parameters
    ----------
    wanted : Plan
    peers : sequence of Peer
        Installed ones.
    absent : dict of str to str
        The others, and why.
    say : callable
        Takes a line that tells how far it is.

    Returns
    -------
    Results
    """
    start, others = time.monotonic(), machine.others_seconds()
    found = Results(wanted.mode, machine.describe(peers), dict(absent))
    for work in wanted.works:
        taking_part = _without_compilers(peers, work, wanted)
        if len(taking_part) < len(peers):
            found.left_out.append(work.name)
        for column in wanted.columns:
            say(f"{work.name}, {column.name}")
            try:
                found.cells.append(measure(work, column, taking_part, wanted.effort))
            except ValueError as error:  # bfloat16 without ml_dtypes
                found.absent[work.name] = str(error)
    for work in wanted.data_works:
        taking_part = _without_compilers(peers, work, wanted)
        for name in wanted.data_names:
            done = (c for c in found.cells if (c.work, c.column, c.data) == (work, wanted.data_column, name))
            if cell := next(done, None):
                found.data_cells.append(cell)
                continue
            say(f"{work.name}, {wanted.data_column.name}, {name}")
            try:
                cell = measure(work, wanted.data_column, taking_part, wanted.effort, name=name)
                found.data_cells.append(cell)
            except data.AbsentError as error:
                found.absent[name] = str(error)
    say("front door, allocation and layouts")
    found.front_door = front_door(wanted.effort)
    found.allocation = allocation(wanted.effort, wanted.columns, peers)
    found.layouts = layouts(wanted.effort, wanted.columns[-1]) if wanted.columns else []
    for work in wanted.sweep_works:
        for threads in sorted({min(n, gf.cpu_info()["cpus"]) for n in wanted.sweep_threads}):
            taking_part = [p for p in peers if p.name not in wanted.sweep_without]
            for size in wanted.sweep_sizes:
                say(f"{work.name}, sweep, {Column(size, threads).name}")
                found.sweep.append(measure(work, Column(size, threads), taking_part, wanted.sweep_effort))
    found.machine["load_at_end"] = machine.load_average()
    found.seconds = time.monotonic() - start
    after = machine.others_seconds()
    busy = None if others is None or after is None else round((after - others) / found.seconds, 2)
    found.machine["cpus_taken_by_others"] = busy
    return found


def _without_compilers(peers: Sequence[Peer], work: Work, wanted: Plan) -> list[Peer]:
    return [p for p in peers if not p.compiles or work in wanted.compiled]
