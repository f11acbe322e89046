"""What an export or a verification found, as attributes, JSON and a table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gelu_fast.export.activation import Edge
from gelu_fast.export.blocks import Stack
from gelu_fast.export.forms import FLOATS
from gelu_fast.export.loading import Loaded
from gelu_fast.export.timing import Latency
from gelu_fast.forms import shown

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Level:
    """What onnxruntime makes of the model at one level of graph optimisation.

    Attributes
    ----------
    name : {"disable", "basic", "extended", "all"}
    error_over_allowed : float
        As in `VerifyReport`; a float32 copy's if the model has no kernels.
    operators : tuple of str
        Those that ran, in order.
    kernels : tuple of str
        Each with the type of its first input and the execution provider.
    casts : tuple of str
        The Casts that onnxruntime put in: the tensor, from which type, to which.
    """

    name: str
    error_over_allowed: float
    operators: tuple[str, ...]
    kernels: tuple[str, ...]
    casts: tuple[str, ...]


@dataclass(frozen=True)
class VerifyReport:
    """How a model compares with a float64 computation of the blocks it should be.

    Attributes
    ----------
    passed : bool or None
        Whether every check held; None if none was asked for.
    formula : {"none", "tanh", "quick"}
        The GELU that was expected.
    form : str
        How the model spells it: one of `gelu_fast.export.forms.FORMS`, or ``"other"`` for what nobody stated.
    opset, ir_version : int
    max_abs_error : float or None
        Largest |model − float64| over all outputs for N(0, 1) inputs.
    max_rel_error : float or None
        Largest over all rows, the chosen hard ones included, of (largest error in the row) / (largest float64
        value in the row). By row and not by element, because an output near 0 is a sum of large terms that
        cancel.
    error_over_allowed : float or None
        Largest over rows and optimisation levels of (largest error in the row) / (the error that the dtype's
        arithmetic may have there, as `gelu_fast.export.reference` derives it); it holds if this is at most 1.
    operators : tuple of str
        The operators onnxruntime kept after its optimisation, in order.
    runtime : str
        Name, version and execution provider; empty if nothing was run.
    path : Path or None
        The model's file; None for a model in memory.
    files : tuple of Path
        Every file the model needs.
    size : int
        Bytes of all these files.
    sha256 : str
        Hex digest of the .onnx file.
    dims : tuple of str
        Names of the dynamic leading axes.
    features : tuple of int
        (in, hidden, out) of a block; of a stack (in, hidden, between, hidden, …, out).
    batches : tuple of tuple of int
        Leading shapes that were run.
    failures : tuple of str
        What didn't hold, a sentence each.
    remarks : tuple of str
        What is no failure of the model but good to know: where the runtime is wrong, what couldn't be checked.
    dtype : str
    hidden_features : tuple of int
        One per block.
    manifest : Path or None
        The list of files and hashes that the files were compared with.
    verified_by : str
        What ran the model: ``"onnxruntime"``, or a copy of it and why; empty if nothing was run.
    levels : tuple of Level
        The model at every level of graph optimisation.
    activations : tuple of str
        The tensors before the GELUs that were cut out and fed with infinities, nan, subnormals and the tail.
    edges : tuple of gelu_fast.export.activation.Edge
        The values at which these are wrong, and by whose fault.
    latency : tuple of gelu_fast.export.timing.Latency
        Of each form, and of torch; empty unless asked for.
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
    features: tuple[int, ...]
    batches: tuple[tuple[int, ...], ...]
    failures: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    dtype: str = "float32"
    hidden_features: tuple[int, ...] = ()
    manifest: Path | None = None
    verified_by: str = ""
    levels: tuple[Level, ...] = ()
    activations: tuple[str, ...] = ()
    edges: tuple[Edge, ...] = ()
    latency: tuple[Latency, ...] = ()

    @classmethod
    def unverified(cls, loaded: Loaded, stack: Stack, formula: str, failures: tuple[str, ...] = ()) -> VerifyReport:
        """What can be said without running anything.

        Parameters
        ----------
        loaded : Loaded
        stack : Stack
            The blocks that it should be.
        formula : {"none", "tanh", "quick"}
            The GELU that it should have.
        failures : tuple of str
            Reasons why it can't be run; with any, `passed` is False instead of None.
        """
        model = loaded.model
        widths = [(block.in_features, block.hidden_features) for block in stack.blocks]
        value = next((v for v in model.graph.input if v.name not in {t.name for t in model.graph.initializer}), None)
        axes = [] if value is None else list(value.type.tensor_type.shape.dim)[:-1]
        return cls(
            passed=False if failures else None,
            formula=formula,
            form=stated_form(model),
            opset=next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0),
            ir_version=model.ir_version,
            max_abs_error=None,
            max_rel_error=None,
            error_over_allowed=None,
            operators=(),
            runtime="",
            path=loaded.path,
            files=loaded.files,
            size=loaded.size,
            sha256=loaded.sha256,
            dims=tuple(axis.dim_param or f"axis{index}" for index, axis in enumerate(axes)),
            features=(*(n for pair in widths for n in pair), stack.out_features),
            batches=(),
            failures=failures,
            dtype=FLOATS.get(0 if value is None else value.type.tensor_type.elem_type, "unknown"),
            hidden_features=stack.hidden_features,
            manifest=loaded.manifest,
        )

    def to_json(self) -> str:
        """The attributes as one JSON object; paths as strings.

        A number that isn't finite is null, and text such as "-inf" in `edges`.
        """
        found = _plain(asdict(self)) | {"edges": _plain([asdict(edge) for edge in self.edges], str)}
        return json.dumps(found, indent=2, ensure_ascii=False)

    def rows(self) -> list[tuple[str, str]]:
        """Label and text of each line of the table."""
        shapes = ", ".join("×".join(map(str, shape)) for shape in self.batches)
        lines = [
            ("result", {True: "passed", False: "FAILED", None: "not verified"}[self.passed]),
            ("file", str(self.path) if self.path is not None else "(in memory)"),
            ("size", f"{self.size:,} bytes"),
            ("sha256", self.sha256),
            ("block", f"{' → '.join(map(str, self.features))}, {self.dtype}, dynamic axes: {', '.join(self.dims)}"),
            ("formula", shown(self.formula)),
            ("form", f"{self.form}, opset {self.opset}, IR {self.ir_version}"),
        ]
        lines += [("also needed", str(path)) for path in self.files[1:]]
        if self.runtime:
            lines += [
                ("runtime", self.runtime),
                ("verified by", self.verified_by),
                ("operators kept", " → ".join(self.operators)),
                ("batches run", shapes),
                ("max abs error", f"{_number(self.max_abs_error)} on N(0, 1) inputs"),
                ("max rel error", f"{_number(self.max_rel_error)} of the largest output in the row"),
                ("error / allowed", f"{_number(self.error_over_allowed)} (holds up to 1)"),
                ("at each level", ", ".join(f"{level.name} {level.error_over_allowed:.3g}" for level in self.levels)),
            ]
            lines += [
                ("casts put in", f"{level.name}: {', '.join(level.casts)}") for level in self.levels if level.casts
            ]
        for found in self.latency:
            each = ", ".join(f"batch {batch}: {value:.4g} µs" for batch, value in found.microseconds.items())
            lines.append(
                (f"time, {found.name}", each + (f" ({' → '.join(found.operators)})" if found.operators else ""))
            )
        lines += [("remark", text) for text in self.remarks]
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


def stated_form(model: onnx.ModelProto) -> str:
    """The form in the model's metadata or, without one, the form that its operators are."""
    stated: dict[str, str] = {entry.key: entry.value for entry in model.metadata_props}
    if "gelu_fast.form" in stated:
        return stated["gelu_fast.form"]
    kinds = {(node.domain, node.op_type) for node in model.graph.node}
    if kinds & {("", "Gelu"), ("ai.onnx", "Gelu")}:
        return "native"
    contributed = {"Gelu", "FastGelu", "BiasGelu", "QuickGelu"}
    return "contrib" if any(d == "com.microsoft" and op in contributed for d, op in kinds) else "other"


def _plain(value: Any, not_finite: Callable[[float], Any] = lambda _: None) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item, not_finite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, not_finite) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return not_finite(value)
    return value
