"""What `quantize` did to a model and how far its results moved."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Errors:
    """Quantised against float model, over rows (all outputs, leading axes flattened).

    Attributes
    ----------
    max_abs : float
        Largest |quantised − float|.
    max_rel : float
        Largest over rows of (largest error in the row) / (largest float value in the row).
    min_cosine : float
        Smallest over rows of the cosine between the two.
    worst_row : int
        The row that has `max_rel`.
    rows : int
        How many were run.
    on : str
        What was run: random inputs, or the calibration data.
    """

    max_abs: float
    max_rel: float
    min_cosine: float
    worst_row: int
    rows: int
    on: str


@dataclass(frozen=True)
class QuantizedNode:
    """A node of the input model whose weight is stored in fewer bits.

    Attributes
    ----------
    name, operator : str
        As in the input model; an unnamed node has a name made from its operator and place.
    weight : str
        The stored tensor.
    stored_as : str
        Type and granularity, for example ``"int8 per tensor"``.
    """

    name: str
    operator: str
    weight: str
    stored_as: str


@dataclass(frozen=True)
class KeptNode:
    """A node of the input model that was not quantised, and why."""

    name: str
    operator: str
    reason: str


@dataclass(frozen=True)
class QuantizeReport:
    """What was quantised, what wasn't, and the error.

    Attributes
    ----------
    method : str
        One of `gelu_fast.export.quantize_methods.METHODS`.
    settings : dict
        Everything that was chosen for the method: types, granularity, block size, calibration.
    source, path : Path
        The float model, and the file that was written.
    source_size, size : int
        Bytes, with external data.
    sha256 : str
        Of the file that was written.
    opset, ir_version : int
    quantized : tuple of QuantizedNode
    kept : tuple of KeptNode
        Every other node of the input model.
    steps : tuple of str
        What was rewritten so that the method could be applied.
    ties : tuple of str
        Weights that several nodes share, and how they are stored now.
    errors : Errors or None
        None if the model's inputs can't be made up and no data was given.
    operators : tuple of str
        What onnxruntime runs, in order; empty if nothing was run.
    runtime : str
    target : str
    remarks : tuple of str
    failures : tuple of str
        Why the file was not kept; empty otherwise.
    """

    method: str
    settings: dict[str, Any]
    source: Path
    path: Path
    source_size: int
    size: int
    sha256: str
    opset: int
    ir_version: int
    quantized: tuple[QuantizedNode, ...]
    kept: tuple[KeptNode, ...]
    steps: tuple[str, ...]
    ties: tuple[str, ...]
    errors: Errors | None
    operators: tuple[str, ...]
    runtime: str
    target: str
    remarks: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the file loads and gives finite results wherever the float model does."""
        return not self.failures

    def to_json(self) -> str:
        """The attributes and `passed` as one JSON object; paths as strings, numbers that aren't finite as null."""
        return json.dumps(_plain({"passed": self.passed, **asdict(self)}), indent=2, ensure_ascii=False)

    def rows(self) -> list[tuple[str, str]]:
        """Label and text of each line of the table."""
        e = self.errors
        lines = [
            ("result", "passed" if self.passed else "FAILED"),
            ("method", self.method + "".join(f", {key} {value}" for key, value in self.settings.items())),
            ("source", str(self.source)),
            ("file", str(self.path)),
            ("size", f"{self.size:,} bytes, {self.size / self.source_size:.3f} of {self.source_size:,}"),
            ("sha256", self.sha256),
            ("opset", f"{self.opset}, IR {self.ir_version}"),
        ]
        lines += [("quantised", f"{n.operator} {n.name}: {n.weight} → {n.stored_as}") for n in self.quantized]
        reasons: dict[str, list[str]] = {}
        for node in self.kept:
            reasons.setdefault(node.reason, []).append(f"{node.operator} {node.name}")
        lines += [("not quantised", f"{', '.join(names)}: {reason}") for reason, names in reasons.items()]
        lines += [("rewritten", text) for text in self.steps]
        lines += [("tied", text) for text in self.ties]
        if e is None:
            lines.append(("error", "not measured"))
        else:
            lines += [
                ("measured on", f"{e.rows} rows of {e.on}"),
                ("max abs error", f"{e.max_abs:.3g}"),
                ("max rel error", f"{e.max_rel:.3g} of the largest output in the row (row {e.worst_row})"),
                ("min cosine", f"{e.min_cosine:.6f}"),
            ]
        if self.operators:
            lines.append(("operators kept", " → ".join(self.operators)))
        lines += [("runtime", self.runtime), ("target", self.target)]
        lines += [("remark", text) for text in self.remarks]
        return lines + [("failure", text) for text in self.failures]

    def __str__(self) -> str:
        return table(self.rows())


class QuantizationError(RuntimeError):
    """The quantised model doesn't run, or not with finite results. No file was left.

    Attributes
    ----------
    report : QuantizeReport
    """

    def __init__(self, report: QuantizeReport) -> None:
        super().__init__(report)
        self.report = report

    def __str__(self) -> str:
        return f"{self.report.path}: not written, because {'; '.join(self.report.failures)}"


@dataclass(frozen=True)
class ComparedMethod:
    """One line of a comparison.

    Attributes
    ----------
    method : str
        ``"float"`` is the model itself.
    reason : str
        Why there are no numbers; empty otherwise.
    size : int or None
        Bytes.
    microseconds : dict of int to float
        Median latency by batch.
    errors : Errors or None
        None for the float model, and where it can't be measured.
    report : QuantizeReport or None
        Of a file that isn't kept; `path` is where it would be found.
    """

    method: str
    reason: str = ""
    size: int | None = None
    microseconds: dict[int, float] | None = None
    errors: Errors | None = None
    report: QuantizeReport | None = None


@dataclass(frozen=True)
class Comparison:
    """Size, latency and error of a model quantised in several ways.

    Attributes
    ----------
    source : Path
    methods : tuple of ComparedMethod
        The float model first.
    runtime : str
    """

    source: Path
    methods: tuple[ComparedMethod, ...]
    runtime: str

    def to_json(self) -> str:
        """One JSON object; paths as strings, numbers that aren't finite as null."""
        return json.dumps(_plain(asdict(self)), indent=2, ensure_ascii=False)

    def header(self) -> list[str]:
        """Titles of the columns."""
        batches = next((list(m.microseconds) for m in self.methods if m.microseconds), [])
        return ["method", "bytes", *(f"µs, batch {n}" for n in batches),
                "max abs", "max rel", "min cosine", "worst row"]  # fmt: skip

    def rows(self) -> list[list[str]]:
        """The cells of each line; a method without numbers has its reason in the second."""
        lines = []
        for m in self.methods:
            if m.reason:
                lines.append([m.method, f"– {m.reason}"])
                continue
            cells = [m.method, f"{m.size:,}", *(f"{t:.4g}" for t in (m.microseconds or {}).values())]
            if m.errors is not None:
                e = m.errors
                cells += [f"{e.max_abs:.3g}", f"{e.max_rel:.3g}", f"{e.min_cosine:.6f}", str(e.worst_row)]
            lines.append(cells)
        return lines

    def __str__(self) -> str:
        header = self.header()
        full = [header, *(row + [""] * (len(header) - len(row)) for row in self.rows())]
        # A reason is longer than any number; it runs over the columns, which are empty in its line.
        widths = [max(len(row[i]) for row in full if not row[1].startswith("– ") or i == 0) for i in range(len(header))]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in full)


def table(lines: list[tuple[str, str]]) -> str:
    """Labels and texts in two columns."""
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
