"""The same model quantised in every way, side by side."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gelu_fast.export import quantize_data, quantize_measure
from gelu_fast.export.quantize import Options, read_float, write
from gelu_fast.export.quantize_data import Calibration
from gelu_fast.export.quantize_methods import METHODS
from gelu_fast.export.quantize_report import ComparedMethod, Comparison
from gelu_fast.export.runtime import runtime_name


def compare_methods(
    path: str | os.PathLike[str],
    *,
    methods: Sequence[str] = METHODS,
    calibration: Calibration | None = None,
    batches: Sequence[int] = (1, 8, 128),
    target: str | None = None,
    untie: bool = False,
    reduce_range: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> Comparison:
    """Size, latency and error of a model by every method; no file is kept.

    Parameters
    ----------
    path : str or PathLike
        The float32 .onnx file.
    methods : sequence of str
        Of `gelu_fast.export.quantize_methods.METHODS`.
    calibration, target, untie, reduce_range, seed, progress
        As in `gelu_fast.export.quantize`. Without calibration data the static methods are not run, and say so.
    batches : sequence of int
        Rows for which the latency is measured, all models in turns; a model of fixed shape has its own alone.

    Returns
    -------
    Comparison
        A method that can't be had appears with the reason.
    """
    for method in methods:
        if method not in METHODS:
            raise ValueError(f"methods: expected some of {', '.join(map(repr, METHODS))}, got {method!r}")
    if not batches or any(not isinstance(n, int) or n < 1 for n in batches):
        raise ValueError(f"batches: expected positive integers, got {batches!r}")
    loaded, model = read_float(path)
    data = quantize_data.choose(calibration, model, seed)
    assert loaded.path is not None
    found = [ComparedMethod("float", size=loaded.size)]
    with tempfile.TemporaryDirectory(prefix="gelu-fast-") as folder:
        places = {"float": loaded.path}
        for method in methods:
            place = Path(folder) / f"{method}.onnx"
            if method.startswith("static") and calibration is None:
                found.append(ComparedMethod(method, "needs calibration data"))
                continue
            options = Options(untie, reduce_range and method not in ("float16", "int4"), progress=progress)
            try:
                report = write(loaded, model, (place, place), method, target, data, options)
            except ValueError as error:
                found.append(ComparedMethod(method, str(error)))
                continue
            if report.failures:
                found.append(ComparedMethod(method, "; ".join(report.failures), report=report))
                continue
            places[method] = place
            found.append(ComparedMethod(method, size=report.size, errors=report.errors, report=report))
        times: dict[str, dict[int, float]] = {}
        if data[0] is not None:
            times = quantize_measure.latencies(places, _by_batch(data[0][0], model, batches))
    lines = [
        ComparedMethod(m.method, m.reason, m.size, times.get(m.method), m.errors, m.report) if not m.reason else m
        for m in found
    ]
    return Comparison(loaded.path, tuple(lines), runtime_name())


def _by_batch(feed: quantize_data.Feed, model: Any, batches: Sequence[int]) -> dict[int, quantize_data.Feed]:
    """The rows of `feed`, repeated or cut to each length."""
    shapes = [shape for _, shape in quantize_data.model_inputs(model).values()]
    if any(shape is None or not shape or shape[0] is not None for shape in shapes):
        return {len(next(iter(feed.values()))): feed}
    return {
        n: {name: np.ascontiguousarray(np.resize(array, (n, *array.shape[1:]))) for name, array in feed.items()}
        for n in batches
    }
