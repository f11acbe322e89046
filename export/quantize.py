"""quantize: a model in fewer bits, by onnxruntime's tools, with a report of what became of every node.

The tools decide much in silence: which nodes they skip, that a shared weight is stored twice, that a large weight is
cut off at float16's end. Here each such case is handled, reported or refused; see quantize_prepare.py and
quantize_methods.py. The result is loaded and run before its file appears, and compared with the float model.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gelu_fast.export import graph, quantize_data, quantize_measure, quantize_methods, targets, writing
from gelu_fast.export.lazy import require
from gelu_fast.export.loading import Loaded, load
from gelu_fast.export.quantize_data import Calibration, Feed
from gelu_fast.export.quantize_graph import STANDARD, all_nodes, copied, name_nodes
from gelu_fast.export.quantize_methods import METHODS
from gelu_fast.export.quantize_prepare import inline, prepare
from gelu_fast.export.quantize_report import Errors, KeptNode, QuantizationError, QuantizedNode, QuantizeReport
from gelu_fast.export.runtime import runtime_name


def quantize(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    method: str,
    calibration: Calibration | None = None,
    target: str | None = None,
    untie: bool = False,
    reduce_range: bool = False,
    keep_io_types: bool = True,
    overwrite: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> QuantizeReport:
    """Write a float32 ONNX model in fewer bits and measure what that costs.

    Matrix products with a stored weight (MatMul, Gemm) are quantised, everything else stays as it is; method float16
    converts every float32 tensor instead. The input file is never changed. The output is one file, external data
    inside.

    Parameters
    ----------
    path : str or PathLike
        The .onnx file, of any origin.
    out : str or PathLike
        The file to write; not `path`.
    method : {"dynamic", "dynamic-per-channel", "static", "static-per-channel", "float16", "int4"}
        See `gelu_fast.export.quantize_methods`.
    calibration : array (rows, in), path of an .npz or .npy, mapping or iterable of dicts, optional
        Inputs by name, an array if there is one input. Needed by static, which takes its ranges from them; given to any
        method, they are what the errors are measured on. By default N(0, 1) rows.
    target : str, optional
        As `gelu_fast.export.export_ffn` has it; whether it reads the file's opset, IR version and operators.
    untie : bool
        Whether a weight that can't stay shared may be stored once for each use; by default it is refused.
    reduce_range : bool
        Int8 methods: weights on 7 bits, for x86 processors without VNNI, on which onnxruntime's sums of 8 × 8 bits
        saturate at 16 bits.
    keep_io_types : bool
        float16: whether inputs and outputs stay float32.
    overwrite : bool
        Whether `out` may be replaced.
    seed : int
        Of the random rows.
    progress : bool
        Whether calibration shows a bar on standard error.

    Returns
    -------
    QuantizeReport

    Raises
    ------
    QuantizationError
        If the result doesn't load, or isn't finite where the float model is; no file is left.
    FileExistsError, FileNotFoundError, IsADirectoryError, PermissionError
        As `gelu_fast.export.export_ffn`.
    ValueError, TypeError
        If an argument is wrong, nothing can be quantised, or a shared weight can't stay shared; names it.
    ImportError
        If onnx or onnxruntime is missing; the message names the extra.
    """
    _check_options(method, calibration, reduce_range)
    goal = writing.check_path(out, overwrite, "out")
    loaded, model = read_float(path)
    if goal.exists() and loaded.path is not None and any(goal.samefile(file) for file in loaded.files):
        raise ValueError(f"out: {goal} belongs to the model to quantise, which is never changed; expected another name")
    feeds, on = quantize_data.choose(calibration, model, seed)
    with writing.staged(goal, overwrite) as stage:
        options = Options(untie, reduce_range, keep_io_types, progress)
        report = write(loaded, model, (stage.model, goal), method, target, (feeds, on), options)
        if report.failures:
            raise QuantizationError(report)
        stage.publish()
    return report


def read_float(path: str | os.PathLike[str]) -> tuple[Loaded, Any]:
    """A model file and the model with all its tensors inside; raises as `quantize` says."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path: expected the name of an .onnx file, got {type(path).__name__}")
    loaded = load(path)
    if loaded.size > writing.MAX_BYTES:
        raise ValueError(
            f"path: {loaded.name} has {loaded.size:,} bytes with its data; onnxruntime's quantisers take at most "
            f"{writing.MAX_BYTES:,}, what one protobuf message holds"
        )
    model: Any = copied(loaded.model)
    if loaded.folder is not None:
        require("onnx.external_data_helper").load_external_data_for_model(model, str(loaded.folder))
    graph.check_model(model)
    marks = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulNBits")
    done = [node.name or node.op_type for node in all_nodes(model.graph) if node.op_type in marks]
    if done:
        raise ValueError(f"path: {loaded.name} is quantised already ({done[0]}); expected a float model")
    return loaded, model


@dataclass(frozen=True)
class Options:
    """As the arguments of `quantize`."""

    untie: bool = False
    reduce_range: bool = False
    keep_io_types: bool = True
    progress: bool = False


def write(
    loaded: Loaded,
    model: Any,
    files: tuple[Path, Path],
    method: str,
    target: str | None,
    data: tuple[list[Feed] | None, str],
    options: Options,
) -> QuantizeReport:
    """Quantise a model that was read.

    Parameters
    ----------
    loaded, model
        From `read_float`.
    files : (Path, Path)
        Where to write, and the path that the report shall name.
    method : str
    target : str, optional
    data : (list of dict or None, str)
        From `quantize_data.choose`.
    options : Options
    """
    (place, goal), (feeds, on) = files, data
    stored_as, settings = quantize_methods.describe(method, options.reduce_range, options.keep_io_types)
    if method.startswith("static"):
        settings["calibration rows"] = quantize_data.rows(feeds or [])
    steps: list[str] = []
    ties: list[str] = []
    with quantize_methods.messages() as remarks:
        if method == "float16":
            model_ready = inline(model, steps)
            result, float32, warnings = quantize_methods.to_float16(model_ready, options.keep_io_types)
            quantized, kept = _of_float16(model_ready, result, float32)
            remarks += [
                *warnings,
                "the CPU computes most float16 operators in float32; other hardware rounds each step",
            ]
        else:
            prepared = prepare(model, method, options.untie)
            result = quantize_methods.run(method, prepared, feeds, place.parent, options.reduce_range, options.progress)
            quantized = tuple(QuantizedNode(u.node.name, u.node.op_type, u.root, stored_as) for u in prepared.uses)
            kept, steps, ties = tuple(prepared.kept), prepared.steps, prepared.ties
    quantize_methods.restore(result, model, method)
    opset, before = (_opset(m) for m in (result, model))
    if opset != before:
        steps.append(f"opset {before} → {opset}")
    plan = check_target(target, method, opset, result.ir_version)
    graph.check_model(result)
    place.write_bytes(result.SerializeToString(deterministic=True))
    found = load(place)
    errors, operators, failures = _measure(place, loaded, feeds, on)
    if method == "float16" and feeds is not None:
        failures += quantize_measure.overflowing(model_ready, feeds[0], quantize_methods.FLOAT16_LARGEST)
    if "int8" in stored_as and not options.reduce_range:
        remarks.append(
            "on x86 processors without VNNI sums of 8 × 8 bits saturate; reduce_range=True (--reduce-range) avoids it"
        )
    if target is not None:
        remarks.append(f"measured on {runtime_name()} alone, not on every runtime the target means")
    return QuantizeReport(
        method=method,
        settings=settings,
        source=loaded.path or Path(),
        path=goal,
        source_size=loaded.size,
        size=found.size,
        sha256=found.sha256,
        opset=opset,
        ir_version=result.ir_version,
        quantized=quantized,
        kept=kept,
        steps=tuple(steps),
        ties=tuple(ties),
        errors=errors,
        operators=operators,
        runtime=runtime_name(),
        target=plan,
        remarks=tuple(remarks),
        failures=tuple(failures),
    )


def check_target(target: str | None, method: str, opset: int, ir_version: int) -> str:
    """The target as it was understood; ValueError if it doesn't read the file."""
    plan = targets.resolve(target, "primitive", "none", "float32")
    if not plan.runtimes and (method == "int4" or opset > plan.opset):
        needed = "MatMulNBits, an operator of onnxruntime's" if method == "int4" else f"opset {opset}, the model's own"
        raise ValueError(f"target: {plan.target} was asked for, but {method!r} needs {needed}")
    for row in plan.runtimes:
        if opset > row.opset or ir_version > row.ir_version:
            raise ValueError(
                f"target: {plan.target} reads opsets up to {row.opset} and IR versions up to {row.ir_version}; "
                f"the model has opset {opset}, IR {ir_version}"
            )
    return plan.target


def _check_options(method: str, calibration: Any, reduce_range: bool) -> None:
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(map(repr, METHODS))}, got {method!r}")
    if method.startswith("static") and calibration is None:
        raise ValueError(f"calibration: {method!r} takes its ranges from inputs like those to come; expected an array "
                         "(rows, in), an .npz or dicts, got None")  # fmt: skip
    if reduce_range and method in ("float16", "int4"):
        raise ValueError(f"reduce_range: {method!r} has no int8 weights; expected False")


def _opset(model: Any) -> int:
    return next((e.version for e in model.opset_import if e.domain in STANDARD), 0)


def _of_float16(model: Any, result: Any, float32: list[str]) -> tuple[tuple[QuantizedNode, ...], tuple[KeptNode, ...]]:
    """Nodes that read a converted tensor, and the others."""
    half = require("onnx").TensorProto.FLOAT16
    named = copied(model)
    name_nodes(named)
    converted = {tensor.name for tensor in result.graph.initializer if tensor.data_type == half}
    quantized, kept = [], []
    for node in all_nodes(named.graph):
        weights = [name for name in node.input if name in converted]
        if node.name in float32:
            kept.append(KeptNode(node.name, node.op_type, "computed in float32 between Casts"))
        elif weights:
            quantized.append(QuantizedNode(node.name, node.op_type, ", ".join(weights), "float16"))
        else:
            kept.append(KeptNode(node.name, node.op_type, "has no stored weights; runs in the type it is given"))
    return tuple(quantized), tuple(kept)


def _measure(
    place: Path, loaded: Loaded, feeds: list[Feed] | None, on: str
) -> tuple[Errors | None, tuple[str, ...], list[str]]:
    try:
        if feeds is None:
            quantize_measure.Session(place)
            return None, (), []
        assert loaded.path is not None
        errors, failures = quantize_measure.compare(place, loaded.path, feeds, on)
        return errors, quantize_measure.operators(place, feeds[0]), failures
    except ValueError as error:
        return None, (), [str(error)]
