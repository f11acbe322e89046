"""A dask array computed under a progress bar, here or on a cluster; what's interrupted is cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gelu_fast.export.lazy import require


def computed(y: Any) -> Any:
    """`y` persisted, a bar counting its chunks; dask's scheduler is the one that is current.

    Parameters
    ----------
    y : dask.array.Array

    Returns
    -------
    dask.array.Array
        Its chunks stand in this process's memory, or the workers'.
    """
    callbacks: Any = require("dask.callbacks", "dask")
    core: Any = require("dask.core", "dask")
    keys = set(core.flatten(y.__dask_keys__()))
    with _bar(len(keys)) as advance:
        # In this process the call returns when all is done; a cluster's returns at once, with futures.
        with callbacks.Callback(posttask=lambda key, *_: advance(key in keys)):
            done = y.persist()
        futures = [value for value in dict(done.dask).values() if hasattr(value, "add_done_callback")]
        if futures:
            _wait(futures, advance)
    return done


def _wait(futures: list[Any], advance: Any) -> None:
    client: Any = require("distributed", "dask")
    try:
        for future in client.as_completed(futures):
            if future.status != "finished":
                future.result()  # raises what went wrong
            advance(True)
    except BaseException:  # Ctrl-C too: nobody waits for the rest any more
        futures[0].client.cancel(futures)
        raise


@contextmanager
def _bar(total: int) -> Iterator[Any]:
    rich: Any = require("rich.progress")
    console: Any = require("rich.console").Console(stderr=True)
    columns = ("{task.description}", rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=console) as progress:
        task = progress.add_task("chunks", total=total)
        yield lambda one: progress.advance(task, int(one))
