"""Runs the float and the quantised model side by side: errors, operators, latency."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gelu_fast.export.lazy import require
from gelu_fast.export.quantize_data import Feed
from gelu_fast.export.quantize_graph import GELUS, add_types, copied
from gelu_fast.export.quantize_report import Errors
from gelu_fast.export.runtime import PROVIDER

_TURNS = 3
_ROUNDS = 5  # in each turn
_ROUND_SECONDS = 2e-3


class Session:
    """A model file in onnxruntime, all optimisations on.

    Raises
    ------
    ValueError
        If onnxruntime can't load it.
    """

    def __init__(self, path: Path, folder: str | None = None) -> None:
        runtime: Any = require("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        if folder is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder) / "profile")
        try:
            self.session = runtime.InferenceSession(str(path), options, providers=[PROVIDER])
        except Exception as error:  # onnxruntime's exceptions share no public base class
            raise ValueError(f"onnxruntime {runtime.__version__} can't load it: {error}") from error
        kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32, "tensor(double)": np.float64}
        self._types = {value.name: kinds.get(value.type) for value in self.session.get_inputs()}

    def __call__(self, feed: Feed) -> list[np.ndarray[Any, Any]]:
        """Outputs; floating inputs are cast to what the model takes."""
        given = {
            name: array.astype(self._types[name], copy=False) if array.dtype.kind == "f" else array
            for name, array in feed.items()
        }
        try:
            return [np.asarray(output) for output in self.session.run(None, given)]
        except Exception as error:  # as above
            raise ValueError(f"onnxruntime can't run it: {error}") from error


def operators(path: Path, feed: Feed) -> tuple[str, ...]:
    """What onnxruntime runs, in order."""
    with tempfile.TemporaryDirectory(prefix="gelu-fast-") as folder:
        session = Session(path, folder)
        session(feed)
        events = json.loads(Path(session.session.end_profiling()).read_text("utf-8"))
    return tuple(
        str(event["args"]["op_name"])
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    )


def overflowing(model: Any, feed: Feed, limit: float) -> list[str]:
    """Results of products and GELUs of a float model that pass `limit`, and its outputs, a sentence each.

    In float16 they are infinite on hardware that computes in it. onnxruntime's CPU provider computes in float32 between
    Casts and leaves out those that it put in, so that running the converted model doesn't show it.
    """
    copy = copied(model)
    add_types(copy)
    float32 = require("onnx").TensorProto.FLOAT
    # Not every tensor: a mask's -3.4e38 is meant, and does as well at -65504.
    made = {name for node in copy.graph.node if node.op_type in ("MatMul", "Gemm", *GELUS) for name in node.output}
    made -= {value.name for value in copy.graph.output}
    inner = [v for v in copy.graph.value_info if v.type.tensor_type.elem_type == float32 and v.name in made]
    copy.graph.output.extend(inner)
    with tempfile.TemporaryDirectory(prefix="gelu-fast-") as folder:
        path = Path(folder) / "all.onnx"
        path.write_bytes(copy.SerializeToString())
        session = Session(path)
        values = zip((value.name for value in session.session.get_outputs()), session(feed), strict=True)
        largest = {n: float(np.abs(a[np.isfinite(a)]).max(initial=0)) for n, a in values if a.dtype == np.float32}
    return [f"tensor {n} reaches {v:.4g} and its type ends at {limit:g}" for n, v in largest.items() if v > limit]


def compare(path: Path, reference: Path, feeds: list[Feed], on: str) -> tuple[Errors, list[str]]:
    """Errors of a model against another over all feeds, and what is wrong with its results."""
    model, other = Session(path), Session(reference)
    worst, largest, cosine, first = (-1.0, 0), 0.0, 1.0, 0
    failures: list[str] = []
    for feed in feeds:
        count = 0
        for got, expected in zip(model(feed), other(feed), strict=True):
            if expected.dtype.kind != "f":
                continue
            a, b = _rows(got), _rows(expected)
            count = max(count, len(b))
            bad = np.isfinite(b) & ~np.isfinite(a)
            if bad.any():
                failures.append(f"row {first + int(bad.any(axis=1).argmax())} isn't finite, and is in the float model")
                continue
            a, b = (np.where(np.isfinite(b), values, 0.0) for values in (a, b))
            error, scale = np.abs(a - b).max(axis=1), np.abs(b).max(axis=1)
            relative = np.divide(error, scale, out=np.where(error > 0, np.inf, 0.0), where=scale > 0)
            at = int(relative.argmax())
            worst = max(worst, (float(relative[at]), first + at), key=lambda pair: pair[0])
            norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
            cosines = np.divide((a * b).sum(axis=1), norms, out=np.ones_like(norms), where=norms > 0)
            largest, cosine = max(largest, float(error.max())), min(cosine, float(cosines.min()))
        first += count
    return Errors(largest, max(worst[0], 0.0), cosine, worst[1], first, on), failures


def _rows(array: Any) -> Any:
    wide = array.astype(np.float64)
    return wide.reshape(-1, wide.shape[-1]) if wide.ndim > 1 else wide.reshape(1, -1)


def latencies(paths: Mapping[str, Path], feeds: Mapping[int, Feed]) -> dict[str, dict[int, float]]:
    """Median microseconds of each model by batch.

    The models take turns, so that a slow spell meets all of them, but one session lives at a time: threads of several
    wait for work by spinning, and took the processors from each other (562 µs instead of 144, 2 cores, 7 sessions).
    """
    rounds: dict[tuple[str, int], list[float]] = {(name, batch): [] for name in paths for batch in feeds}
    for _ in range(_TURNS):
        for name, path in paths.items():
            session = Session(path)
            for batch, feed in feeds.items():
                rounds[name, batch] += _times(session, feed)
            del session
    return {name: {n: round(statistics.median(rounds[name, n]) * 1e6, 2) for n in feeds} for name in paths}


def _times(session: Session, feed: Feed) -> list[float]:
    session(feed)
    start = time.perf_counter()
    session(feed)
    repeats = max(1, round(_ROUND_SECONDS / max(time.perf_counter() - start, 1e-7)))
    found = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        for _ in range(repeats):
            session(feed)
        found.append((time.perf_counter() - start) / repeats)
    return found
