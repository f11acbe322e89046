"""One cell: one work, one size, one thread count, one input; everybody checked, then everybody timed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import gelu_fast as gf

from . import data
from .check import Verdict, check, reference
from .contenders import COPY, OUR_UFUNC, OURS, OWN, Array, Contender, NotOfferedError, Peer, copy, ours_and_numba
from .timing import Effort, Timing, compare
from .work import Column, Work

# Beyond this, peers are compared at every seventh element only; we are compared at all of them.
_WHOLE = 1 << 20
_STEP = 7

OwnBinding = Callable[[Work, Array, Array | None], list[Contender]]


@dataclass(frozen=True)
class Row:
    """A contender in a cell; `timing` is None where its answer was wrong."""

    name: str
    verdict: Verdict | None
    timing: Timing | None


@dataclass
class Cell:
    """What was found.

    Attributes
    ----------
    work, column, data
        What was measured.
    rows : list of Row
        Us, the copy, the peers.
    notes : dict of str to str
        Why a peer that is installed has no row.
    threads_used : int
        Threads that our side could use.
    """

    work: Work
    column: Column
    data: str
    rows: list[Row] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    threads_used: int = 0

    def nanoseconds(self, name: str) -> float | None:
        """Median time of a call, or None."""
        return next((r.timing.median for r in self.rows if r.name == name and r.timing), None)

    @property
    def best_peer(self) -> Row | None:
        """The fastest of the others whose answer is right."""
        others = [r for r in self.rows if r.timing and r.name not in (*OWN, COPY)]
        return min(others, key=lambda r: r.timing.median if r.timing else 0, default=None)

    @property
    def ratio(self) -> float | None:
        """Time of the best peer over ours: above 1 we are faster."""
        return self._ratio(OURS)

    @property
    def ufunc_ratio(self) -> float | None:
        """The same for the bare ufunc."""
        return self._ratio(OUR_UFUNC)

    @property
    def wrong(self) -> list[str]:
        """What to say of answers of ours that break their bound; they are not timed."""
        return [
            f"{row.name}, {self.work.name}, {self.column.name}, {self.data}: off by {row.verdict.max_ulp:.4g} ULP, "
            f"{row.verdict.max_abs:.3g} absolute; the bound is {row.verdict.bound}"
            for row in self.rows
            if row.verdict and not row.verdict.passed and row.name in OWN
        ]

    @property
    def copy_share(self) -> float | None:
        """Time of the copy over ours."""
        mine, limit = self.nanoseconds(OURS), self.nanoseconds(COPY)
        return limit / mine if mine and limit else None

    def _ratio(self, name: str) -> float | None:
        mine, best = self.nanoseconds(name), self.best_peer
        return best.timing.median / mine if mine and best and best.timing else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        best = self.best_peer
        return {
            "work": self.work.name, "form": self.work.form, "dtype": self.work.dtype, "backward": self.work.backward,
            "size": self.column.size, "threads": self.column.threads, "threads_used": self.threads_used,
            "data": self.data, "best_peer": best.name if best else None, "ratio": self.ratio,
            "ufunc_ratio": self.ufunc_ratio, "copy_share": self.copy_share,
            "rows": [self._row(row) for row in self.rows], "not_offered": self.notes,
        }  # fmt: skip

    def _row(self, row: Row) -> dict[str, Any]:
        found: dict[str, Any] = {"name": row.name, "passed": row.verdict is None or row.verdict.passed}
        if row.verdict:
            found |= {"max_abs_error": row.verdict.max_abs, "max_ulp_error": row.verdict.max_ulp}
            found |= {"bound": row.verdict.bound, "checked": row.verdict.checked}
        if row.timing:
            # The copy moves one array in and one out, whatever the work.
            moved = self.work if row.name != COPY else Work(self.work.form, self.work.dtype)
            found |= {
                "ns_per_call": row.timing.median,
                "spread": row.timing.spread,
                "gelem_per_s": self.column.size / row.timing.median,
                "gb_per_s": moved.bytes_moved(self.column.size) / row.timing.median,
                "samples_ns": list(row.timing.samples),
                "calls_per_sample": row.timing.calls,
            }
        return found


def _scoped(contender: Contender, peer: Peer, threads: int) -> Contender:
    """With the peer's thread setting made anew for each turn.

    Made once for the whole cell, it did not last: Numba's start raises the OpenMP setting that it shares with torch,
    and torch's "one thread" was two from then on.
    """

    @contextlib.contextmanager
    def scope() -> Iterator[None]:
        with peer.scope(threads), contender.scope():
            yield

    return replace(contender, scope=scope)


def measure(
    work: Work,
    column: Column,
    peers: Sequence[Peer],
    effort: Effort,
    *,
    name: str = data.NORMAL,
    binding: OwnBinding = ours_and_numba,
) -> Cell:
    """Check, then time those whose answer is right.

    Parameters
    ----------
    work : Work
    column : Column
    peers : sequence of Peer
        Installed ones.
    effort : Effort
    name : str
        One of `data.DATA`.
    binding : callable
        What makes our contenders.

    Returns
    -------
    Cell

    Raises
    ------
    data.AbsentError
        If these data can't be made here.
    """
    x = data.make(name, column.size, work.numpy_dtype)
    dy = data.gradients(column.size, work.numpy_dtype) if work.backward else None
    cell = Cell(work, column, name)
    step = _STEP if column.size > _WHOLE else 1
    with contextlib.ExitStack() as scopes:
        scopes.enter_context(np.errstate(all="ignore"))  # of the NumPy formula
        scopes.enter_context(gf.num_threads(column.threads))
        cell.threads_used = gf.cpu_info()["usable_threads"]
        exact = reference(work, x, dy)
        contenders: list[Contender] = []
        for own in binding(work, x, dy):
            own.call()
            verdict = check(work, x, dy, own.result(), exact, ours=True)
            cell.rows.append(Row(own.name, verdict, None))
            if verdict.passed:
                contenders.append(own)
        limit = copy(x, column.threads)
        limit.call()
        cell.rows.append(Row(COPY, None, None))
        contenders.append(limit)
        for peer in peers:
            try:
                with peer.scope(column.threads):
                    bound = peer.bind(work, x, dy, column.threads)
                for contender in bound:
                    contender = _scoped(contender, peer, column.threads)
                    with contender.scope():
                        contender.call()
                    verdict = check(work, x, dy, contender.result(), exact, ours=False, step=step)
                    cell.rows.append(Row(contender.name, verdict, None))
                    if verdict.passed:
                        contenders.append(contender)
            except NotOfferedError as reason:
                cell.notes[peer.name] = str(reason)
            except Exception as error:  # one peer's trouble (no compiler, say) must not end the run; it is printed
                cell.notes[peer.name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
        del exact
        times = compare(contenders, effort, column.threads)
    timings = {c.name: t for c, t in zip(contenders, times, strict=True)}
    cell.rows = [Row(r.name, r.verdict, timings.get(r.name)) for r in cell.rows]
    return cell
