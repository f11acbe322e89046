"""Who takes part: a contender is one callable bound to preallocated arrays. Here: us, and the copy as the limit."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

import gelu_fast as gf

from .work import Work

Array = npt.NDArray[Any]

OURS = "gelu_fast"
OUR_UFUNC = "gelu_fast ufunc"
OUR_NUMBA = "gelu_fast, numba"
OWN = (OURS, OUR_UFUNC, OUR_NUMBA)  # none of them is a peer
COPY = "copy"
_UFUNCS = {
    ("none", False): gf.ufuncs.gelu,
    ("tanh", False): gf.ufuncs.gelu_tanh,
    ("quick", False): gf.ufuncs.gelu_quick,
    ("none", True): gf.ufuncs.gelu_backward,
    ("tanh", True): gf.ufuncs.gelu_tanh_backward,
    ("quick", True): gf.ufuncs.gelu_quick_backward,
}


class NotOfferedError(Exception):
    """A peer has no such function; the message says why."""


@dataclass(frozen=True)
class Contender:
    """One callable, bound to its arrays.

    Parameters
    ----------
    name : str
    call : callable
        Takes nothing; writes the result into an array allocated before.
    result : callable
        Takes nothing; the last result as a NumPy array of the work's dtype.
    scope : callable
        A context manager that is entered around each turn.
    """

    name: str
    call: Callable[[], object]
    result: Callable[[], Array]
    scope: Callable[[], AbstractContextManager[Any]] = nullcontext


class Peer:
    """A library. Nothing is imported before `bind`.

    Attributes
    ----------
    name : str
    packages : tuple of str
        What must be importable.
    compiles : bool
        Compiles for each function, size and thread count, which takes seconds.
    """

    name = ""
    packages: tuple[str, ...] = ()
    compiles = False

    def missing(self) -> str:
        """Why it can't take part, or an empty string."""
        lacking = [p for p in self.packages if importlib.util.find_spec(p) is None]
        return f"{' and '.join(lacking)} not installed" if lacking else ""

    def scope(self, threads: int) -> AbstractContextManager[Any]:
        """The library's own thread setting at `threads`, put back on leaving."""
        return nullcontext()

    def bind(self, work: Work, x: Array, dy: Array | None, threads: int) -> list[Contender]:
        """Bind to arrays.

        Parameters
        ----------
        work : Work
        x, dy : ndarray of shape (n,)
            Contiguous, aligned to 64 bytes; `dy` for a backward work.
        threads : int

        Returns
        -------
        list of Contender
            More than one where the library has several ways.

        Raises
        ------
        NotOfferedError
        """
        raise NotImplementedError


def load(name: str) -> Any:
    """Import a module by name: on first use, and untyped, since a checker may not find an optional package."""
    return importlib.import_module(name)


def aligned(size: int, dtype: npt.DTypeLike) -> Array:
    """An uninitialised array that starts on a cache line, as torch's and JAX's do, so that nobody is put at odds."""
    dtype = np.dtype(dtype)
    raw = np.empty(size * dtype.itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * dtype.itemsize].view(dtype)


def ours(work: Work, x: Array, dy: Array | None) -> list[Contender]:
    """The front door and the bare ufunc, both with ``out=``."""
    function = _UFUNCS[work.form, work.backward]
    door, ufunc = aligned(x.size, x.dtype), aligned(x.size, x.dtype)
    if work.backward:
        front: Callable[[], object] = partial(gf.gelu_backward, dy, x, work.form, out=door)
        bare: Callable[[], object] = partial(function, dy, x, ufunc)
    else:
        front = partial(gf.gelu, x, work.form, out=door)
        bare = partial(function, x, ufunc)
    return [Contender(OURS, front, lambda: door), Contender(OUR_UFUNC, bare, lambda: ufunc)]


def ours_and_numba(work: Work, x: Array, dy: Array | None) -> list[Contender]:
    """The same, and the front door with ``backend="numba"`` where it serves; Numba's threads are as many as it has."""
    own = ours(work, x, dy)
    if work.dtype in ("float32", "float64") and importlib.util.find_spec("numba"):
        out = aligned(x.size, x.dtype)
        if work.backward:
            call: Callable[[], object] = partial(gf.gelu_backward, dy, x, work.form, out=out, backend="numba")
        else:
            call = partial(gf.gelu, x, work.form, out=out, backend="numba")
        own.append(Contender(OUR_NUMBA, call, lambda: out))
    return own


def copy(x: Array, threads: int) -> Contender:
    """``np.copyto`` on as many threads, each with its share: what memory allows. NumPy lets go of the GIL in it.

    Below a million elements it is one thread's, handing out the shares costing more than it saves.
    """
    out = aligned(x.size, x.dtype)
    if threads == 1 or x.size < 1 << 20:
        return Contender(COPY, partial(np.copyto, out, x), lambda: out)
    pieces = list(zip(np.array_split(out, threads), np.array_split(x, threads), strict=True))
    pool = _pool(threads - 1)

    def call() -> None:
        others = [pool.submit(np.copyto, *piece) for piece in pieces[1:]]
        np.copyto(*pieces[0])
        wait(others)

    return Contender(COPY, call, lambda: out)


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers)


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Keep every thread of this process on `threads` CPUs: the only way to limit a library that has no setting."""
    before = {task: os.sched_getaffinity(task) for task in _tasks()}
    chosen = frozenset(sorted(os.sched_getaffinity(0))[:threads])
    try:
        _set_affinity(dict.fromkeys(before, chosen))
        yield
    finally:
        # A thread born meanwhile inherited the limit.
        everything = before[threading.get_native_id()]
        _set_affinity({task: before.get(task, everything) for task in _tasks()})


def _tasks() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]


def _set_affinity(wanted: Mapping[int, Iterable[int]]) -> None:
    for task, cpus in wanted.items():
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.sched_setaffinity(task, cpus)


def present(roster: Sequence[Peer]) -> tuple[list[Peer], dict[str, str]]:
    """Those that are installed, and why the others are not here.

    Returns
    -------
    (peers, absent) : list of Peer, dict of str to str
        `absent` maps a name to the reason.
    """
    reasons = {peer.name: peer.missing() for peer in roster}
    return [p for p in roster if not reasons[p.name]], {n: r for n, r in reasons.items() if r}
