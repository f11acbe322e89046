"""Outputs against the stored float64 answers; NumPy (1.26 to 2.x) alone, since it runs beside every onnxruntime."""

import base64
import json
from pathlib import Path

import numpy as np


def read_cases(folder):
    """The list of cases of a folder that make_cases.py or probe_models.py wrote."""
    return json.loads((Path(folder) / "cases.json").read_text(encoding="utf-8"))["cases"]


def read_array(folder, name, dtype, shape):
    """A raw little-endian file as an array."""
    return np.fromfile(Path(folder) / name, np.dtype(dtype).newbyteorder("<")).astype(dtype).reshape(shape)


def decode(text, dtype):
    """What a JavaScript runner sent: little-endian bytes in base64, flat."""
    return np.frombuffer(base64.b64decode(text), np.dtype(dtype).newbyteorder("<"))


def error_of(got, want, tolerance):
    """The largest absolute error, and the largest error as a share of what is tolerated (passed: <= 1).

    Tolerated is ``absolute + relative * max(|want| over the row)``: each output is a sum over the hidden layer, so
    rounding is in proportion to the row's size. inf and nan must stand where the answer has them.
    """
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape:
        return float("inf"), float("inf")
    if not want.size:
        return 0.0, 0.0
    special = ~np.isfinite(want)
    if not np.array_equal(got[special], want[special], equal_nan=True) or not np.isfinite(got[~special]).all():
        return float("inf"), float("inf")
    error = np.abs(np.where(special, 0, got) - np.where(special, 0, want))
    row = np.max(np.abs(np.where(special, 0, want)), axis=-1, keepdims=True)
    allowed = tolerance["absolute"] + tolerance["relative"] * row
    return float(error.max()), float((error / allowed).max())


def compare(folder, case, batch, got):
    """The row that a report holds for one batch: shape, errors, passed; `got` has the output's shape."""
    if "y" not in batch:  # a probe: it has run, that's all
        return {"shape": batch["shape"], "passed": True}
    want = read_array(folder, batch["y"], "float64", batch["y_shape"])
    largest, share = error_of(got, want, case["tolerance"])
    return {"shape": batch["shape"], "max_abs": largest, "share": share, "passed": share <= 1}
