"""Inputs for calibration and for measuring errors, as one dict of arrays per run of the model."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gelu_fast.export.lazy import require

Feed = dict[str, np.ndarray[Any, Any]]
Calibration = (
    np.ndarray[Any, Any] | str | os.PathLike[str] | Mapping[str, np.ndarray[Any, Any]] | Iterable[Mapping[str, Any]]
)
_ROWS = 256  # of random input
_BATCH = 64  # rows of calibration data per run, so that intermediate results stay small


def model_inputs(model: Any) -> dict[str, tuple[np.dtype[Any], tuple[int | None, ...] | None]]:
    """Each input that must be fed: dtype and shape, None for a length that may vary, None for an unknown rank."""
    helper: Any = require("onnx.helper")
    held = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, tuple[np.dtype[Any], tuple[int | None, ...] | None]] = {}
    for value in model.graph.input:
        if value.name in held:
            continue
        if not value.type.HasField("tensor_type"):
            raise ValueError(f"path: input {value.name!r} is no tensor; only tensors are served")
        kind = value.type.tensor_type
        shape = None
        if kind.HasField("shape"):
            shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
        found[value.name] = (np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)), shape)
    return found


def read(calibration: Any, model: Any) -> list[Feed]:
    """Calibration data in any of the forms that `gelu_fast.export.quantize` takes, checked against the inputs.

    Raises
    ------
    TypeError, ValueError, FileNotFoundError
        Naming `calibration`, what came and what was expected.
    """
    inputs = model_inputs(model)
    if isinstance(calibration, (str, os.PathLike)):
        calibration = _read_npz(calibration, inputs)
    if isinstance(calibration, Mapping):
        whole = {name: np.asarray(array) for name, array in calibration.items()}
        feeds = _split(whole)
    elif isinstance(calibration, np.ndarray):
        if len(inputs) != 1:
            raise ValueError(
                f"calibration: an array serves a model of one input, this one has {', '.join(inputs)}; expected an "
                ".npz or dicts with these names"
            )
        ((name, (_, shape)),) = inputs.items()
        feeds = _split({name: _to_rank(calibration, name, shape)})
    elif isinstance(calibration, Iterable):
        feeds = []
        for number, feed in enumerate(calibration):
            if not isinstance(feed, Mapping):
                raise TypeError(f"calibration: expected dicts of arrays by input name, got {type(feed).__name__} "
                                f"as number {number}")  # fmt: skip
            feeds.append({name: np.asarray(array) for name, array in feed.items()})
    else:
        raise TypeError(
            "calibration: expected an array (rows, in), the path of an .npz, a mapping of arrays or an iterable of "
            f"dicts, got {type(calibration).__name__}"
        )
    if not feeds or any(array.size == 0 for feed in feeds for array in feed.values()):
        raise ValueError("calibration: expected at least one row, got none")
    return [_check(feed, inputs) for feed in feeds]


def random(model: Any, seed: int) -> list[Feed] | None:
    """N(0, 1) rows; None if an input isn't floating or has an unknown rank, since nobody knows what it means."""
    rng = np.random.default_rng(seed)
    feed = {}
    for name, (dtype, shape) in model_inputs(model).items():
        if dtype.kind != "f" or not shape:
            return None
        # The first length that may vary holds the rows, others are 1.
        lengths = [1 if n is None else n for n in shape]
        if shape[0] is None:
            lengths[0] = _ROWS
        feed[name] = rng.standard_normal(lengths).astype(dtype)
    return [feed]


def choose(calibration: Any, model: Any, seed: int) -> tuple[list[Feed] | None, str]:
    """What to run, and what to call it."""
    if calibration is None:
        return random(model, seed), f"N(0, 1), seed {seed}"
    return read(calibration, model), "the calibration data"


def rows(feeds: list[Feed]) -> int:
    """How many entries the leading axis has in all."""
    firsts = [next(iter(feed.values())) for feed in feeds]
    return sum(array.shape[0] if array.ndim else 1 for array in firsts)


def _read_npz(path: str | os.PathLike[str], inputs: Mapping[str, Any]) -> Any:
    try:
        # Opened here, because np.load leaves a damaged archive open.
        with open(path, "rb") as stream:
            content = np.load(stream, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return content
            found = {name: content[name] for name in content.files}
    except FileNotFoundError as error:
        raise FileNotFoundError(f"calibration: no file at {os.fspath(path)}") from error
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        reason = "Python objects are never loaded" if "pickle" in str(error) else error
        raise ValueError(f"calibration: {os.fspath(path)} is no .npz or .npy file of numbers: {reason}") from error
    if len(found) == 1 and len(inputs) == 1:  # whatever it is called
        return next(iter(found.values()))
    return found


def _to_rank(array: Any, name: str, shape: tuple[int | None, ...] | None) -> Any:
    if shape is None or array.ndim == len(shape):
        return array
    if array.ndim == 2 and len(shape) > 2 and all(n in (None, 1) for n in shape[1:-1]):
        return array.reshape(len(array), *(1,) * (len(shape) - 2), array.shape[-1])
    raise ValueError(f"calibration: input {name!r} has rank {len(shape)}, got an array of shape {array.shape}")


def _split(whole: Feed) -> list[Feed]:
    lengths = {array.shape[0] if array.ndim else -1 for array in whole.values()}
    if len(lengths) != 1 or -1 in lengths:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in whole.items())
        raise ValueError(f"calibration: expected arrays with as many rows each, got {shapes or 'none'}")
    count = lengths.pop()
    return [{name: array[i : i + _BATCH] for name, array in whole.items()} for i in range(0, count, _BATCH)]


def _check(feed: Feed, inputs: Mapping[str, tuple[np.dtype[Any], tuple[int | None, ...] | None]]) -> Feed:
    if feed.keys() != inputs.keys():
        raise ValueError(f"calibration: expected the inputs {', '.join(inputs)}, got {', '.join(feed) or 'none'}")
    checked = {}
    for name, (dtype, shape) in inputs.items():
        array = feed[name]
        if array.dtype.kind not in ("fiu" if dtype.kind == "f" else "iub"):
            raise TypeError(f"calibration: input {name!r} is {dtype}, got {array.dtype}")
        if shape is not None and (
            array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True))
        ):
            wanted = tuple("any" if n is None else n for n in shape)
            raise ValueError(f"calibration: input {name!r} has the shape {wanted}, got {array.shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"calibration: input {name!r} holds nan or infinities; expected finite numbers")
        checked[name] = np.ascontiguousarray(array.astype(dtype, copy=False))
    return checked
