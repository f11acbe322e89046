"""Streams, devices, the grid: from numbers to a kernel in a queue.

What can be asked once is asked once: numba.cuda's own look-ups (a device's context, a stream, a launch's
configuration, which it keeps by the identity of the stream object) are calls of the driver.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from . import driver

BLOCK = 256  # threads
# The simulator runs every thread in turn; nothing may depend on how many there are.
SIMULATED = ((2, 2), (3, 2))


@contextlib.contextmanager
def _at(cuda: Any, place: int) -> Iterator[None]:
    with cuda.gpus[place]:
        yield


def on_device(cuda: Any, place: int | None) -> contextlib.AbstractContextManager[None]:
    """The device as numba.cuda's current one, if there are several."""
    if place is None or driver.is_simulator() or _devices() == 1:
        return contextlib.nullcontext()
    return _at(cuda, place)


def start(
    cuda: Any, operation: str, dtype: str, numbers: list[int], work: int, rows: int, stream: int | None
) -> None:
    """Queue a kernel.

    Parameters
    ----------
    numbers : list of int
        The kernel's parameters.
    work, rows : int
        How many threads have something to do, across and down.
    stream : int or None
        A handle, as in `interface.View`.
    """
    from . import kernels

    if driver.is_simulator():
        kernels.kernel(operation, dtype, True)[SIMULATED](*numbers)
        return
    device = _current(cuda)
    packed, processors = _capabilities(device)
    configured = kernels.kernel(operation, dtype, packed)[(*grid(work, rows, processors), stream_of(stream, device))]
    configured(*numbers)


def wait(cuda: Any, later: int | None, earlier: set[int | None]) -> None:
    """What is queued in the stream `later` from now on comes after what is in the streams `earlier` now."""
    if driver.is_simulator():
        return
    for handle in earlier - {later}:
        device = _current(cuda)
        event = cuda.event(timing=False)
        event.record(stream_of(handle, device))
        event.wait(stream_of(later, device))


@lru_cache(maxsize=256)
def stream_of(handle: int | None, device: int) -> Any:
    """numba.cuda's object for a stream of the current device: the same one every time."""
    cuda = driver.module()
    if handle is None:
        return cuda.default_stream()
    if handle == 1:
        return cuda.legacy_default_stream()
    if handle == 2:
        return cuda.per_thread_default_stream()
    return cuda.external_stream(handle)


@cache
def _devices() -> int:
    return len(driver.module().gpus)


def _current(cuda: Any) -> int:
    return 0 if _devices() == 1 else int(cuda.get_current_device().id)


@cache
def _capabilities(device: int) -> tuple[bool, int]:
    """Whether it rounds two numbers at a time, and its number of multiprocessors."""
    found = driver.module().gpus[device]
    return tuple(found.compute_capability) >= (8, 0), int(found.MULTIPROCESSOR_COUNT)


@lru_cache(maxsize=1024)
def grid(work: int, rows: int, processors: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Blocks and threads. Rows shorter than a block share one; a thread goes on where there is more than fits."""
    across = min(BLOCK, 1 << (work - 1).bit_length())
    down = BLOCK // across
    blocks = min(-(-work // across), processors * 64)
    blocks_down = min(-(-rows // down), max(1, processors * 64 // blocks), 65535)
    # Numba warns of less than 128 blocks; more of them that have nothing to do cost less than a microsecond.
    return (max(blocks, -(-128 // blocks_down)), blocks_down), (across, down)
