"""`FeedForward` over a dask array: a task per chunk of rows, and the weights as one node of the graph.

As a node of their own the weights go to the cluster once and from worker to worker, where an argument would travel
with every task. Not by ``client.scatter``, which needs a cluster before anything is computed, and whose data nobody can
make again when the worker that holds it dies.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np


def is_dask(x: Any) -> bool:
    """Whether it is a dask array; dask isn't imported for the question."""
    array: Any = sys.modules.get("dask.array")
    return array is not None and isinstance(x, array.Array)


def run(block: Any, x: Any) -> Any:
    """The block over a checked dask array of shape (..., in): lazy, chunked as `x` but for the last axis."""
    delayed: Any = importlib.import_module("dask.delayed").delayed
    whole = x.rechunk({x.ndim - 1: -1})
    return whole.map_blocks(
        feed_forward,
        block=delayed(block, pure=True),
        dtype=block.dtype,
        chunks=(*whole.chunks[:-1], (block.w2.shape[1],)),
        meta=np.empty((0,) * x.ndim, block.dtype),
    )


def feed_forward(x: Any, *, block: Any) -> Any:
    """One task."""
    return block(x)
