"""`score`: an ONNX file over a dask array, run by the processes that hold its rows.

A task carries the file's path and hash, never the model: each process reads it once. onnxruntime's sessions may be
run by many threads at a time, so one per process serves all its workers' threads.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from gelu_fast.export.blocks import Array
from gelu_fast.export.dask_progress import computed
from gelu_fast.export.lazy import require
from gelu_fast.export.loading import Loaded, load
from gelu_fast.export.runtime import PROVIDER

_KEPT = 4  # sessions of one process; the one not used for longest goes


@dataclass(frozen=True)
class Job:
    """What a session is made from, and how it's run.

    Attributes
    ----------
    files : tuple of (str, str)
        Absolute paths, the .onnx file first, each with the SHA-256 of its content.
    providers : tuple of str
    threads : int
    """

    files: tuple[tuple[str, str], ...]
    providers: tuple[str, ...]
    threads: int


def score(
    path: str | PathLike[str],
    x: Any,
    *,
    batch: int | None = None,
    providers: Sequence[str] | None = None,
    threads: int = 1,
    progress: bool = False,
) -> Any:
    """Run an ONNX file over the rows of a dask array, lazily.

    Parameters
    ----------
    path : str or PathLike
        A model of one input and one output, whose first axis is dynamic. Every worker reads it at this path, so on a
        cluster it must stand on a shared file system, or at the same place on each machine: a worker that finds
        another content there raises.
    x : dask.array.Array
        Chunked along the rows, the first axis; other axes are put into one chunk. Of the model's dtype, or one that
        converts to it safely.
    batch : int, optional
        The most rows that are given to onnxruntime at once. By default a whole chunk.
    providers : sequence of str, optional
        onnxruntime's execution providers, in order. By default the CPU's; a worker that lacks one raises.
    threads : int
        Of onnxruntime, for each session. With 1 a row chunk is computed by the very thread that dask gives it, which
        uses a machine best when there are at least as many chunks as cores: give a worker process as many threads as
        it has cores, and leave this at 1.
    progress : bool
        Whether to compute now, under a progress bar on standard error. The result then stands in the workers' memory
        (or this process's), and is a dask array still.

    Returns
    -------
    dask.array.Array
        Of the shape and dtype that the model states, in chunks of the same rows as `x`.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind, or the model can't take `x`; at once. What a worker finds wrong (another
        file, a provider that it lacks) is raised by ``compute()``.
    FileNotFoundError
        If the model isn't there, or a file that it needs.
    ImportError
        If dask, onnx or onnxruntime is missing; names the extra.

    Notes
    -----
    Each process keeps one session per file, hash, providers and threads, four at most. What fails is up to dask: the
    rows of a worker that dies are computed by another, ``compute(retries=2)`` tries failed chunks again.

    Without a cluster dask's own scheduler runs it here. To use one, make a client first; nothing else changes::

        from dask.distributed import Client
        client = Client("tcp://scheduler:8786")      # started by `dask scheduler`, `dask worker` on each machine
        y = score("/shared/ffn.onnx", da.from_zarr("/shared/x.zarr"), batch=1024)
        y.to_zarr("/shared/y.zarr")                  # rows go from worker to disk, none through this process

    The workers need ``pip install 'gelu-fast[dask,onnx]'``.

    Examples
    --------
    >>> import dask.array as da, gelu_fast as gf                              # doctest: +SKIP
    >>> x = da.random.normal(size=(1_000_000, 512), chunks=(8192, -1)).astype("float32")  # doctest: +SKIP
    >>> gf.export.score("ffn.onnx", x).mean(axis=0).compute()                 # doctest: +SKIP
    """
    da: Any = require("dask.array", "dask")
    if not isinstance(path, (str, PathLike)):
        raise TypeError(f"path: expected the name of an .onnx file, got {type(path).__name__}")
    if not isinstance(x, da.Array):
        raise TypeError(
            f"x: expected a dask array, got {type(x).__name__}; dask.array.from_array(x, chunks=(4096, -1)) makes one"
        )
    for name, count in (("batch", batch), ("threads", threads)):
        if not (count is None and name == "batch"):
            _check_count(name, count)
    if isinstance(providers, str) or not all(isinstance(name, str) for name in providers or ()) or providers == []:
        raise TypeError(f"providers: expected None or names such as [{PROVIDER!r}], got {providers!r}")
    loaded = load(path)
    taken, given, tail = _interface(loaded, x)
    job = Job(_hashed(loaded), tuple(providers or (PROVIDER,)), threads)
    x = x.rechunk(dict.fromkeys(range(1, x.ndim), -1))
    rank = len(tail) + 1
    y = x.map_blocks(
        score_rows,
        job=job,
        batch=batch,
        tail=tail,
        dtypes=(taken, given),
        dtype=given,
        chunks=(x.chunks[0], *((length,) for length in tail)),
        drop_axis=list(range(rank, x.ndim)),
        new_axis=list(range(x.ndim, rank)),
        meta=np.empty((0,) * rank, given),
    )
    return computed(y) if progress else y


def score_rows(
    rows: Array, *, job: Job, batch: int | None, tail: tuple[int, ...], dtypes: tuple[np.dtype[Any], np.dtype[Any]]
) -> Array:
    """One task: the model on some rows, `batch` at a time, in this process's session."""
    result = np.empty((len(rows), *tail), dtypes[1])
    if not len(rows):
        return result
    run = session(job)
    name = run.get_inputs()[0].name
    step = batch or len(rows)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        try:
            y = run.run(None, {name: np.ascontiguousarray(rows[part], dtypes[0])})[0]
        except Exception as error:  # onnxruntime's exceptions share no public base class, and can't all be pickled
            raise ValueError(f"{job.files[0][0]}: onnxruntime can't run it on {rows[part].shape}: {error}") from None
        if y.shape != result[part].shape:
            raise ValueError(f"{job.files[0][0]}: expected an output of shape {result[part].shape}, got {y.shape}")
        result[part] = y
    return result


_sessions: OrderedDict[Job, Any] = OrderedDict()
_lock = threading.Lock()


def session(job: Job) -> Any:
    """This process's onnxruntime session for a job, made at the first call."""
    with _lock:  # so that threads that come at once don't read the model once each
        if job not in _sessions:
            _sessions[job] = _open(job)
            while len(_sessions) > _KEPT:
                _sessions.popitem(last=False)
        _sessions.move_to_end(job)
        return _sessions[job]


def _forget() -> None:
    """A forked child has neither its parent's threads, which sessions need, nor who would open the lock."""
    global _lock
    _lock = threading.Lock()
    _sessions.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _open(job: Job) -> Any:
    runtime: Any = require("onnxruntime")
    for name, digest in job.files:
        if not Path(name).is_file():
            raise FileNotFoundError(f"path: this worker has no file {name}; expected it where score was called")
        found = _hash(Path(name))
        if found != digest:
            raise ValueError(
                f"path: {name} has sha256 {found} for this worker, and had {digest} when score was called: the file "
                "has changed, or another stands there on this machine"
            )
    lacking = [name for name in job.providers if name not in runtime.get_available_providers()]
    if lacking:  # onnxruntime itself would warn and take the CPU
        raise ValueError(
            f"providers: this worker's onnxruntime has no {', '.join(lacking)}; "
            f"it has {', '.join(runtime.get_available_providers())}"
        )
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    # Threads that wait for work by spinning would take it from the other sessions and from dask.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return runtime.InferenceSession(job.files[0][0], options, providers=list(job.providers))
    except Exception as error:  # as above
        raise ValueError(f"path: onnxruntime {runtime.__version__} can't load {job.files[0][0]}: {error}") from None


def _hashed(loaded: Loaded) -> tuple[tuple[str, str], ...]:
    model, *data = loaded.files
    return ((os.path.abspath(model), loaded.sha256), *((os.path.abspath(file), _hash(file)) for file in data))


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _interface(loaded: Loaded, x: Any) -> tuple[np.dtype[Any], np.dtype[Any], tuple[int, ...]]:
    """The dtypes of input and output, and the output's shape behind the first axis."""
    graph = loaded.model.graph
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise ValueError(
            f"path: {loaded.name}: expected one input and one output, got {len(inputs)} and {len(graph.output)}"
        )
    dtypes = []
    for value in (inputs[0], graph.output[0]):
        kind = value.type.tensor_type
        dtype = np.dtype(require("onnx.helper").tensor_dtype_to_np_dtype(kind.elem_type))
        if dtype.kind not in "fiub":  # bfloat16 and smaller are of kind V; the runtime takes none as a NumPy array
            raise ValueError(f"path: {loaded.name}: {value.name!r}: onnxruntime takes no {dtype.name} from NumPy; "
                             "expected a model of float16, float32, float64, integers or bools")  # fmt: skip
        if not kind.HasField("shape"):
            raise ValueError(f"path: {loaded.name}: {value.name!r}: expected a stated shape")
        dtypes.append(dtype)
    taken, given = (list(value.type.tensor_type.shape.dim) for value in (inputs[0], graph.output[0]))
    shown = [axis.dim_value or axis.dim_param or "?" for axis in taken]
    wanted = f"{inputs[0].name!r} has shape {shown}"
    for axes, value in ((taken, inputs[0]), (given, graph.output[0])):
        if not axes or axes[0].HasField("dim_value"):
            raise ValueError(f"path: {loaded.name}: {value.name!r}: expected a dynamic first axis, the rows")
    if x.ndim != len(taken) or any(
        axis.HasField("dim_value") and axis.dim_value != length
        for axis, length in zip(taken[1:], x.shape[1:], strict=True)
    ):
        raise ValueError(f"x: {wanted}, got an array of shape {x.shape}")
    if not np.can_cast(x.dtype, dtypes[0], "safe"):
        raise TypeError(f"x: expected {dtypes[0]} or what converts to it safely, got {x.dtype}; x.astype would do it")
    if any(np.isnan(x.shape[1:])):
        raise ValueError(f"x: expected lengths known behind the first axis, got {x.shape}; x.compute_chunk_sizes() "
                         "finds them")  # fmt: skip
    known = {axis.dim_param: length for axis, length in zip(taken, x.shape, strict=True) if axis.dim_param}
    tail = []
    for index, axis in enumerate(given[1:], 1):
        if not axis.HasField("dim_value") and axis.dim_param not in known:
            raise ValueError(
                f"path: {loaded.name}: {graph.output[0].name!r}: axis {index} is neither fixed nor named as one of the "
                f"input's, {shown}, so the result's shape can't be told"
            )
        tail.append(int(axis.dim_value if axis.HasField("dim_value") else known[axis.dim_param]))
    return dtypes[0], dtypes[1], tuple(tail)


def _check_count(name: str, count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)):
        raise TypeError(f"{name}: expected a whole number, got {count!r}")
    if count < 1:
        raise ValueError(f"{name}: expected at least 1, got {count}")
