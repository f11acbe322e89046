"""What an export or a verification found, as attributes, JSON and a table."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class VerifyReport:
    """How a model compares with a float64 computation of the block it should be.

    Attributes
    ----------
    passed : bool or None
        Whether every check held; None if none was asked for.
    formula : {"none", "tanh", "quick"}
        The GELU that was expected.
    form : str
        How the model spells it: ``"native"`` is the standard Gelu operator, ``"other"`` any other spelling.
    opset, ir_version : int
    max_abs_error : float or None
        Largest |model − float64| over all outputs for N(0, 1) inputs.
    max_rel_error : float or None
        Largest over all rows, the chosen hard ones included, of (largest error in the row) / (largest float64
        value in the row). By row and not by element, because an output near 0 is a sum of large terms that
        cancel.
    error_over_allowed : float or None
        Largest over rows of (largest error in the row) / (the error float32 may have there, as
        `gelu_fast.export.reference` derives it); the comparison holds if this is at most 1.
    operators : tuple of str
        The operators onnxruntime kept after its optimisation, in order.
    runtime : str
        Name, version and execution provider; empty if nothing was run.
    path : Path or None
        The model's file; None for a model in memory.
    files : tuple of Path
        Every file the model needs.
    size : int
        Bytes of the model.
    sha256 : str
        Hex digest of these bytes.
    dims : tuple of str
        Names of the dynamic leading axes.
    features : tuple of int
        (in, hidden, out).
    batches : tuple of tuple of int
        Leading shapes that were run.
    failures : tuple of str
        What didn't hold, a sentence each.
    """

    passed: bool | None
    formula: str
    form: str
    opset: int
    ir_version: int
    max_abs_error: float | None
    max_rel_error: float | None
    error_over_allowed: float | None
    operators: tuple[str, ...]
    runtime: str
    path: Path | None
    files: tuple[Path, ...]
    size: int
    sha256: str
    dims: tuple[str, ...]
    features: tuple[int, int, int]
    batches: tuple[tuple[int, ...], ...]
    failures: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The attributes as one JSON object; paths as strings, a number that isn't finite as null."""
        return json.dumps(_plain(asdict(self)), indent=2, ensure_ascii=False)

    def rows(self) -> list[tuple[str, str]]:
        """Label and text of each line of the table."""
        shapes = ", ".join("×".join(map(str, shape)) for shape in self.batches)
        lines = [
            ("result", {True: "passed", False: "FAILED", None: "not verified"}[self.passed]),
            ("file", str(self.path) if self.path is not None else "(in memory)"),
            ("size", f"{self.size:,} bytes"),
            ("sha256", self.sha256),
            ("block", f"{' → '.join(map(str, self.features))}, dynamic axes: {', '.join(self.dims)}"),
            ("formula", self.formula),
            ("form", f"{self.form}, opset {self.opset}, IR {self.ir_version}"),
        ]
        if self.passed is not None:
            lines += [
                ("runtime", self.runtime),
                ("operators kept", " → ".join(self.operators)),
                ("batches run", shapes),
                ("max abs error", f"{_number(self.max_abs_error)} on N(0, 1) inputs"),
                ("max rel error", f"{_number(self.max_rel_error)} of the largest output in the row"),
                ("error / allowed", f"{_number(self.error_over_allowed)} (holds up to 1)"),
            ]
        return lines + [("failure", text) for text in self.failures]

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.rows())
        return "\n".join(f"{label:<{width}}  {text}" for label, text in self.rows())


@dataclass(frozen=True)
class ExportReport(VerifyReport):
    """A `VerifyReport` of the file that `gelu_fast.export.export_ffn` has written."""


class VerificationError(RuntimeError):
    """The exported model doesn't compute the block it was made from. No file was left.

    Attributes
    ----------
    report : ExportReport
        What was measured; its `path` is where the file would have been.
    """

    def __init__(self, report: ExportReport) -> None:
        super().__init__(report)
        self.report = report

    def __str__(self) -> str:
        return f"{self.report.path}: not written, because {'; '.join(self.report.failures)}"


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3g}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
