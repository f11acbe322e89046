"""When a kernel may use Numba's threads, and how many; what that does to others is undone.

Numba has three threading layers. Its GNU OpenMP one ends a forked child at its first parallel call, if the parent made
one; its workqueue does not bear two calls at a time. Launching the OpenMP one also sets the OpenMP thread count of the
whole process, torch's included, to NUMBA_NUM_THREADS.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import threading
from collections.abc import Iterator

import numba

import gelu_fast
from gelu_fast.cpu import ufuncs

_lock = threading.Lock()
_launched = False
_forked = False


def _after_fork() -> None:
    global _forked, _lock
    _forked = True
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def threads(size: int) -> Iterator[int]:
    """How many threads to use for so many bytes of input; Numba's own number is set to it, and put back."""
    count = min(size // ufuncs.BYTES_PER_THREAD, gelu_fast.get_num_threads())
    if _forked or count < 2:
        yield 1
        return
    _launch()
    before = numba.get_num_threads()
    count = min(count, before)
    # The workqueue serves one caller at a time; another does its own work rather than wait.
    alone = numba.threading_layer() == "workqueue"
    if count < 2 or (alone and not _lock.acquire(blocking=False)):
        yield 1
        return
    try:
        numba.set_num_threads(count)
        yield count
    finally:
        numba.set_num_threads(before)
        if alone:
            _lock.release()


def _launch() -> None:
    """Start Numba's threads, once, and leave OpenMP's thread count as it is.

    In every copy of OpenMP that it may be: which one Numba's calls reach depends on what was loaded before.
    """
    global _launched
    if _launched:
        return
    with _lock:
        libraries = []
        for name in (None, "numba.np.ufunc.omppool", ufuncs.__name__):
            with contextlib.suppress(OSError, AttributeError):  # not there; without OpenMP
                spec = importlib.util.find_spec(name) if name else None
                library = ctypes.CDLL(spec.origin if spec else None)
                libraries.append((library, library.omp_get_max_threads()))
        numba.get_num_threads()
        for library, limit in libraries:
            library.omp_set_num_threads(limit)
        _launched = True
