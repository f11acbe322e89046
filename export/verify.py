"""Runs a model in onnxruntime and compares it with a float64 computation of the block it should be.

Four things are compared: the stored weights (if the file is ours, whose layout we know), the formula its Gelu
states, the outputs row by row against the tolerance of `gelu_fast.export.reference`, and which of the three
formulas all outputs together are nearest to, which names the mistake: for 512→2048→512 the exact and the tanh form
are 470 times as far apart as float32 noise reaches.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gelu_fast.export import graph
from gelu_fast.export.lazy import require
from gelu_fast.export.reference import expected
from gelu_fast.export.report import VerifyReport
from gelu_fast.export.runtime import Runner, hard_rows
from gelu_fast.export.sources import Block, Source, read_source
from gelu_fast.forms import FORMS

if TYPE_CHECKING:
    import onnx

BATCHES = (0, 1, 7, 33)
_INNER = 3  # length of every further leading axis
_CLEARLY = 0.5  # how much nearer outputs must be to another formula to count as that formula's
_LARGEST = 1e37  # beyond this a float32 run may overflow where float64 does not


def verify(
    path_or_model: str | PathLike[str] | onnx.ModelProto,
    reference: Source,
    *,
    approximate: str | None = None,
    seed: int = 0,
) -> VerifyReport:
    """Compare an ONNX model with the block it should compute.

    The model is run on onnxruntime's CPU provider for 0, 1, 7 and 33 rows of N(0, 1), for an empty inner axis
    if it has one, and for rows chosen to hurt: zeros, ones, single inputs, rows that put the hidden layer
    where the formulas differ most, rows 100 times too large and 1e−20 times too small.

    Parameters
    ----------
    path_or_model : str, PathLike or onnx.ModelProto
        One float32 input of shape (…, in) with named dynamic leading axes, one output (…, out).
    reference : tuple, mapping, torch.nn.Module, str or PathLike
        Whatever `gelu_fast.export.export_ffn` takes as source; any floating dtype.
    approximate : {"none", "tanh", "quick"}, optional
        The formula to hold the model to. By default that of the module; for arrays and files, which can't
        say, the one that the model states in its metadata, or else ``"none"``.
    seed : int
        Of the random rows.

    Returns
    -------
    VerifyReport
        `passed` is False if a weight, a formula or an output differs; `failures` says which.

    Raises
    ------
    FileNotFoundError
        If the path isn't there.
    ValueError
        If the file is corrupt, or has tensors of other shapes than the reference; names the tensor.
    TypeError
        If an argument is of the wrong kind.
    ImportError
        If onnx or onnxruntime is missing; names the extra.
    """
    model, path, payload = _load(path_or_model)
    block = read_source(reference)
    stated = {entry.key: entry.value for entry in model.metadata_props}
    formula = approximate or block.approximate or stated.get("gelu_fast.formula", "none")
    if formula not in FORMS:
        raise ValueError(f"approximate: expected one of {', '.join(FORMS)}, got {formula!r}")
    return check(model, payload, path, block, formula, seed)


def check(
    model: onnx.ModelProto, payload: bytes, path: Path | None, block: Block, formula: str, seed: int = 0
) -> VerifyReport:
    """`verify` for a model already loaded; `payload` is its file's content, `path` where that stands."""
    dims = _check_interface(model, block)
    runner = Runner(payload, path)
    failures = _compare_weights(model, block)
    comparison = _compare_outputs(runner, block, formula, len(dims), seed)
    failures += comparison.failures
    gelus = [node for node in model.graph.node if node.op_type == "Gelu" and node.domain == ""]
    for node in gelus:
        attributes = [attribute.s.decode() for attribute in node.attribute if attribute.name == "approximate"]
        stated = attributes[0] if attributes else "none"
        if stated != formula:  # tells formulas apart even where weights are such that outputs can't
            failures.append(f"node {node.name!r} states approximate={stated!r}, expected {formula!r}")
    return VerifyReport(
        passed=not failures,
        formula=formula,
        form="native" if gelus else "other",
        opset=next((entry.version for entry in model.opset_import if entry.domain == ""), 0),
        ir_version=model.ir_version,
        max_abs_error=comparison.max_abs,
        max_rel_error=comparison.max_rel,
        error_over_allowed=comparison.ratio,
        operators=runner.operators,
        runtime=runner.name,
        path=path,
        files=() if path is None else (path,),
        size=len(payload),
        sha256=hashlib.sha256(payload).hexdigest(),
        dims=dims,
        features=(block.in_features, block.hidden_features, block.out_features),
        batches=comparison.batches,
        failures=tuple(failures),
    )


def _load(path_or_model: Any) -> tuple[onnx.ModelProto, Path | None, bytes]:
    onnx: Any = require("onnx")
    if isinstance(path_or_model, onnx.ModelProto):
        model, path, payload = path_or_model, None, path_or_model.SerializeToString(deterministic=True)
    elif isinstance(path_or_model, (str, PathLike)):
        path = Path(fspath(path_or_model))
        if not path.is_file():
            raise FileNotFoundError(f"path_or_model: no file at {path}")
        payload = path.read_bytes()
        try:
            model = onnx.load_model_from_string(payload)
        except require("google.protobuf.message").DecodeError as error:
            raise ValueError(f"path_or_model: {path} is not an ONNX model, or is damaged: {error}") from error
    else:
        raise TypeError(f"path_or_model: expected a path or an onnx.ModelProto, got {type(path_or_model).__name__}")
    outside = [tensor.name for tensor in model.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
    if outside:
        raise NotImplementedError(f"path_or_model: {', '.join(outside)}: external data isn't served yet")
    try:
        graph.check_model(model)
    except ValueError as error:
        raise ValueError(f"path_or_model: {path or 'the model'}: {error}") from error
    return model, path, payload


def _check_interface(model: onnx.ModelProto, block: Block) -> tuple[str, ...]:
    """Names of the input's leading axes; ValueError if the model can't be this block, naming the tensor."""
    onnx: Any = require("onnx")
    stored = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    if model.producer_name == graph.PRODUCER:
        for name in sorted(set(stored) | set(block.tensors)):
            want = block.tensors[name].shape if name in block.tensors else None
            if stored.get(name) != want:
                said = {True: "doesn't have it", False: f"has shape {want}"}[want is None]
                held = f"has shape {stored[name]}" if name in stored else "doesn't have it"
                raise ValueError(f"tensor {name!r}: the model {held}, the reference {said}")
    inputs = [value for value in model.graph.input if value.name not in stored]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        raise ValueError(
            f"path_or_model: expected one input and one output, got {len(inputs)} and {len(model.graph.output)}"
        )
    dims: list[str] = []
    for value, features in ((inputs[0], block.in_features), (model.graph.output[0], block.out_features)):
        kind = value.type.tensor_type
        if kind.elem_type != onnx.TensorProto.FLOAT:
            raise NotImplementedError(f"path_or_model: {value.name!r} isn't float32, and no other type is served yet")
        axes = list(kind.shape.dim)
        if len(axes) < 2 or axes[-1].dim_value not in (0, features):
            shape = [axis.dim_value or axis.dim_param or "?" for axis in axes]
            raise ValueError(f"path_or_model: {value.name!r}: expected shape (…, {features}), got {shape}")
        if value is inputs[0]:
            fixed = [index for index, axis in enumerate(axes[:-1]) if axis.HasField("dim_value")]
            if fixed:
                raise ValueError(
                    f"path_or_model: {value.name!r}: axis {fixed[0]} is fixed at {axes[fixed[0]].dim_value}; "
                    "expected dynamic leading axes, since 0, 1, 7 and 33 rows are run"
                )
            dims = [axis.dim_param or f"axis{index}" for index, axis in enumerate(axes[:-1])]
    return tuple(dims)


def _compare_weights(model: onnx.ModelProto, block: Block) -> list[str]:
    if model.producer_name != graph.PRODUCER:
        return []
    to_array: Any = require("onnx.numpy_helper").to_array
    failures = []
    for tensor in model.graph.initializer:
        stored, given = to_array(tensor), block.tensors[tensor.name]
        with np.errstate(over="ignore", under="ignore"):
            differs = stored != given.astype(stored.dtype, copy=False)
        if differs.any():
            first = tuple(int(i) for i in np.argwhere(differs)[0])
            failures.append(
                f"tensor {tensor.name!r}: {int(differs.sum())} of {differs.size} values differ from the "
                f"reference; at {first} the model has {stored[first]}, the reference {given[first]}"
            )
    return failures


@dataclass(frozen=True)
class _Comparison:
    max_abs: float
    max_rel: float
    ratio: float
    batches: tuple[tuple[int, ...], ...]
    failures: list[str]


def _compare_outputs(run: Runner, block: Block, formula: str, rank: int, seed: int) -> _Comparison:
    rng = np.random.default_rng(seed)
    inner = (_INNER,) * (rank - 1)
    shapes = [(rows, *inner) for rows in BATCHES]
    if inner:
        shapes.append((2, *(0,) * (rank - 1)))
    inputs = [rng.standard_normal((*shape, block.in_features)).astype(np.float32) for shape in shapes]
    hard = hard_rows(block, rng)
    inputs.append(hard.reshape(len(hard), *(1,) * (rank - 1), block.in_features))
    failures, got = [], []
    for x in inputs:
        want = (*x.shape[:-1], block.out_features)
        y = run(x)
        if y.shape != want:
            raise ValueError(f"path_or_model: for input {x.shape} the output is {y.shape}, expected {want}")
        got.append(y.reshape(-1, block.out_features))
    batches = tuple(x.shape[:-1] for x in inputs)
    rows = np.concatenate([x.reshape(-1, block.in_features) for x in inputs])
    target = expected(block, rows, formula)
    y, want64 = np.concatenate(got).astype(np.float64), target.y[formula]
    # Rows whose own size nears float32's limit may overflow in a right model: they prove nothing.
    usable = np.isfinite(target.allowed) & (np.abs(want64).max(axis=1) < _LARGEST)
    if not usable.any():
        return _Comparison(np.inf, np.inf, np.inf, batches, ["the block overflows float32 for every input tried"])
    with np.errstate(invalid="ignore"):
        error = np.abs(y - want64).max(axis=1)
    error[np.isnan(error)] = np.inf
    ordinary = usable & (np.arange(len(error)) < len(error) - len(hard))
    max_abs = float(error[ordinary].max()) if ordinary.any() else float("nan")
    error, size = error[usable], np.abs(want64[usable]).max(axis=1)
    relative = np.divide(error, size, out=np.where(error > 0, np.inf, 0.0), where=size > 0)
    ratio = float((error / target.allowed[usable]).max())
    if ratio > 1:
        failures.append(f"the outputs differ by {ratio:.3g} times what float32 arithmetic may")
    # In units of the row's own noise, or rows 100 times too large would drown those that tell formulas apart.
    with np.errstate(over="ignore", invalid="ignore"):
        noise = target.allowed[usable, None]
        left = {name: float(np.linalg.norm((y - v)[usable] / noise)) for name, v in target.y.items()}
    nearest = min(left, key=lambda name: left[name])
    if left[nearest] < _CLEARLY * left[formula]:
        failures.append(f"the outputs are those of the {nearest!r} formula, expected {formula!r}")
    return _Comparison(max_abs, float(relative.max()), ratio, batches, failures)
