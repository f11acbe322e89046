"""onnxruntime: a session over a model, the operators it kept, and the inputs that are worth running."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gelu_fast.export.lazy import require
from gelu_fast.export.reference import F32
from gelu_fast.export.sources import Block

_PROVIDER = "CPUExecutionProvider"


class Runner:
    """An onnxruntime session over a model, and the operators it kept."""

    def __init__(self, payload: bytes, path: Path | None) -> None:
        onnx: Any = require("onnx")
        runtime: Any = require("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # saving the optimised model warns that it's bound to this machine
        with tempfile.TemporaryDirectory(prefix="gelu-fast-") as folder:
            optimised = Path(folder) / "optimised.onnx"
            options.optimized_model_filepath = str(optimised)
            try:
                # From the file if there is one: what's checked is then what was written.
                self._session = runtime.InferenceSession(
                    payload if path is None else str(path), options, providers=[_PROVIDER]
                )
            except Exception as error:  # onnxruntime's exceptions share no public base class
                raise ValueError(f"path_or_model: onnxruntime {runtime.__version__} can't load it: {error}") from error
            kept = onnx.load(optimised, load_external_data=False).graph.node
        self.operators = tuple(str(node.op_type) for node in kept)
        self.name = f"onnxruntime {runtime.__version__} ({_PROVIDER})"
        self._input = self._session.get_inputs()[0].name

    def __call__(self, x: F32) -> F32:
        try:
            return np.asarray(self._session.run(None, {self._input: x})[0])
        except Exception as error:  # as above
            raise ValueError(f"path_or_model: {self.name} can't run it on an input of {x.shape}: {error}") from error


def hard_rows(block: Block, rng: np.random.Generator) -> F32:
    """Rows that show errors random ones hide; (rows, in) float32, finite."""
    n = block.in_features
    single = np.zeros((6, n))
    for row, index in enumerate(np.linspace(0, n - 1, len(single)).astype(int)):
        single[row, index] = 3.0 if row % 2 else -3.0
    random = rng.standard_normal((8, n))
    hidden = random @ block.w1.astype(np.float64)
    spread = np.sqrt(np.mean(hidden**2, axis=1, keepdims=True))
    scale = 1 / np.where(spread > 0, spread, 1.0)
    # The formulas differ most for hidden values of 0.5 to 3.
    levels = np.array([0.5, 1.0, 1.0, 1.5, 2.2, 2.2, 3.0, 10.0])[:, None]
    rows = [np.zeros((1, n)), np.ones((1, n)), -np.ones((1, n)), single, random * scale * levels,
            random[:2] * 100, random[2:4] * 1e-20]  # fmt: skip
    return np.asarray(np.clip(np.concatenate(rows), -1e30, 1e30), np.float32)
