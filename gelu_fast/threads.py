"""Thread settings of the CPU kernels, and what they run on. Process-wide."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .cpu import ufuncs as _cpu

get_num_threads = _cpu.get_num_threads
set_num_threads = _cpu.set_num_threads


@contextlib.contextmanager
def num_threads(n: int) -> Iterator[None]:
    """Context manager: at most `n` threads inside, the previous number afterwards. Process-wide all the same.

    Parameters
    ----------
    n : int
        At least 1.
    """
    before = get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)


def cpu_info() -> dict[str, Any]:
    """What the CPU kernels run on.

    Returns
    -------
    dict
        ``isa``: the instruction set in use (``GELU_FAST_ISA`` chooses another before import); ``available``: those
        this CPU can run, best first; ``threads``: as set; ``usable_threads``: what a large call made here and now
        would use; ``cpus``: CPUs this process may run on; ``openmp``: whether the build knows OpenMP, whose limits
        are then obeyed.
    """
    return {
        "isa": _cpu.selected_isa(),
        "available": _cpu.available_isas(),
        "threads": _cpu.get_num_threads(),
        "usable_threads": _cpu.usable_threads(),
        "cpus": _cpu.cpu_count(),
        "openmp": _cpu.has_openmp(),
    }
