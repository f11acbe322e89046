"""Ctrl-C and SIGTERM in commands that call other libraries, which may swallow a KeyboardInterrupt or mistake it.

llvmlite's callbacks print it and go on; onnxruntime, interrupted while it is imported, raises an ImportError.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def remembered() -> Iterator[Callable[[], None]]:
    """Within it a SIGINT raises KeyboardInterrupt, as ever, and a SIGTERM ends the program as an exception does.

    So folders of unfinished files are removed, and children ended, by whoever made them.

    Yields
    ------
    callable
        Raises KeyboardInterrupt if a SIGINT has come since, whoever swallowed the first: to be called between two
        steps. Whatever error ends the block after a SIGINT is raised as a KeyboardInterrupt.
    """
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def check() -> None:
        if came:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # where no signal arrives
        yield check
        return
    before = {number: signal.signal(number, do) for number, do in ((signal.SIGINT, note), (signal.SIGTERM, end))}
    try:
        yield check
    except Exception as error:
        if came:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
