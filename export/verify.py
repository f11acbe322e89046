"""Runs a model in onnxruntime and compares it with a float64 computation of the blocks it should be.

Five things are compared: the stored weights (if the file is ours, whose layout we know), the formula its operators
state, the outputs row by row at every level of graph optimisation, which of the three formulas all outputs together
show, and each activation by itself, with values that no output shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from gelu_fast.checks import form_number
from gelu_fast.export import activation, diagnosis, forms, graph
from gelu_fast.export import timing as _timing
from gelu_fast.export.blocks import Stack
from gelu_fast.export.comparison import BATCHES, compare
from gelu_fast.export.lazy import require
from gelu_fast.export.loading import Loaded, is_external, load
from gelu_fast.export.report import VerifyReport
from gelu_fast.export.runtime import Program, prepare, runtime_name
from gelu_fast.export.sources import Source, read_source
from gelu_fast.forms import QUICK_SLOPE

if TYPE_CHECKING:
    import onnx

_WIDENED = "onnxruntime, a copy with every node in float32 between Casts, since it has no bfloat16 kernels"


def verify(
    path_or_model: str | PathLike[str] | onnx.ModelProto,
    reference: Source,
    *,
    approximate: str | None = None,
    seed: int = 0,
    timing: bool = False,
) -> VerifyReport:
    """Compare an ONNX model with the blocks it should compute.

    The model is run on onnxruntime's CPU provider at every level of graph optimisation, for 0, 1, 7 and 33 rows
    of N(0, 1), for an empty inner axis if it has one, and for rows chosen to hurt: zeros, ones, single inputs,
    rows that put the hidden layer where the formulas differ most, rows 100 times too large and 1e−20 times too
    small. Its activations are also cut out and fed with infinities, nan, zeros, subnormals and the tail, in lengths
    around those of vectors. A bfloat16 model, which the provider has no kernels for, is run as a copy in float32
    between Casts; the report's `verified_by` says so.

    Parameters
    ----------
    path_or_model : str, PathLike or onnx.ModelProto
        One input of shape (…, in) with named dynamic leading axes, one output (…, out), both of one dtype: float32,
        float16, bfloat16 or float64.
    reference : tuple, mapping, torch.nn.Module, keras.Model, str or PathLike
        Whatever `gelu_fast.export.export_ffn` takes as source; any floating dtype.
    approximate : {"none", "tanh", "quick"}, optional
        The formula to hold the model to. By default that of the module; for arrays and files, which can't
        say, the one that the model states in its metadata, or else ``"none"``.
    seed : int
        Of the random rows.
    timing : bool
        Whether to measure the latency of the model, of its block in the other forms, and in torch if it's installed.

    Returns
    -------
    VerifyReport
        `passed` is False if a weight, a formula, an output or an activation differs; `failures` says which, and why
        where that can be told. What the runtime itself gets wrong stands in `remarks`.

    Raises
    ------
    FileNotFoundError
        If the model isn't there, or a file that it needs; names the file.
    ValueError
        If the file is corrupt, has tensors of other shapes than the reference, or can't be run; names the tensor.
    TypeError
        If an argument is of the wrong kind.
    ImportError
        If onnx or onnxruntime is missing; names the extra.
    """
    loaded = load(path_or_model)
    stack = read_source(reference)
    stated = {entry.key: entry.value for entry in loaded.model.metadata_props}
    formula = approximate or stack.approximate or stated.get("gelu_fast.formula", "none")
    form_number(formula)
    return check(loaded, stack, formula, seed=seed, timing=timing)


def check(
    loaded: Loaded,
    stack: Stack,
    formula: str,
    *,
    seed: int = 0,
    timing: bool = False,
    others: Mapping[str, onnx.ModelProto] | None = None,
) -> VerifyReport:
    """`verify` for a model already loaded.

    Parameters
    ----------
    loaded : Loaded
    stack : Stack
    formula : {"none", "tanh", "quick"}
    seed : int
    timing : bool
    others : mapping of str to onnx.ModelProto, optional
        With `timing`: form to the same blocks in that form, weights inside, to be timed beside the model. By default,
        for a model of ours, every form that the installed runtime runs.
    """
    model = loaded.model
    mixed = diagnosis.mixed_dtypes(model)
    try:
        # The checker looks for external data beside the file, so it must know where that is.
        graph.check_model(str(loaded.path) if loaded.path is not None and is_external(model) else model)
    except ValueError as error:
        if mixed:
            return VerifyReport.unverified(loaded, stack, formula, (*mixed, f"it can't run: {error}"))
        raise ValueError(f"path_or_model: {loaded.name}: {error}") from error
    report = VerifyReport.unverified(loaded, stack, formula)
    used = diagnosis.uses(model, stack)
    dtype = _check_interface(model, stack)
    failures = [] if used is None else [*mixed, *diagnosis.compare_weights(used, loaded, stack)]
    program = prepare(model, loaded.path, loaded.folder)
    compared = compare(program, stack, formula, len(report.dims), dtype, seed)
    failures += compared.failures
    failures += [text for text in _stated(model, formula) if text not in failures]
    form = report.form if report.form in forms.FORMS else "fusable"
    alone = activation.examine(model, loaded.folder, formula, form, dtype)
    failures += alone.failures
    remarks = list(alone.remarks)
    if not compared.finite:
        remarks.append(
            "the weights hold nan or infinities: of the outputs only that none is a number by mistake was checked"
        )
    if compared.untold and not alone.sites:
        remarks.append(f"the outputs alone can't tell {formula!r} from {' and '.join(map(repr, compared.untold))}")
    if used is None and compared.failures:
        failures += diagnosis.explain(compared.outputs, loaded, stack, formula)
    latency: tuple[Any, ...] = ()
    if timing:
        if others is None and used is not None and not program.widened:
            others = _timing.in_all_forms(stack.astype(dtype), formula, report.dims)
        latency = _time(program, report, stack, others or {}, dtype)
        if program.widened:
            remarks.append("no latency in onnxruntime: it has no bfloat16 kernels")
    return replace(
        report,
        passed=not failures,
        max_abs_error=compared.max_abs,
        max_rel_error=compared.max_rel,
        error_over_allowed=compared.ratio,
        operators=compared.levels[-1].operators,
        runtime=runtime_name(),
        batches=compared.batches,
        failures=tuple(failures),
        remarks=tuple(remarks),
        verified_by=_WIDENED if program.widened else "onnxruntime",
        levels=compared.levels,
        activations=alone.sites,
        edges=alone.edges,
        latency=latency,
    )


def _time(
    program: Program, report: VerifyReport, stack: Stack, others: Mapping[str, onnx.ModelProto], dtype: Any
) -> tuple[_timing.Latency, ...]:
    own = {} if program.widened else {report.form: program}
    return _timing.measure(own, {} if program.widened else others, stack, report.formula, len(report.dims) + 1, dtype)


def _check_interface(model: onnx.ModelProto, stack: Stack) -> np.dtype[Any]:
    """The dtype of input and output; ValueError if the model can't be this stack."""
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in stored]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        raise ValueError(
            f"path_or_model: expected one input and one output, got {len(inputs)} and {len(model.graph.output)}"
        )
    kinds = []
    for value, features in ((inputs[0], stack.in_features), (model.graph.output[0], stack.out_features)):
        kind = value.type.tensor_type
        if kind.elem_type not in forms.FLOATS:
            expected = ", ".join(forms.FLOATS.values())
            raise ValueError(f"path_or_model: {value.name!r}: expected {expected}, got another type")
        kinds.append(forms.FLOATS[kind.elem_type])
        axes = list(kind.shape.dim)
        if len(axes) < 2 or axes[-1].dim_value not in (0, features):
            shape = [axis.dim_value or axis.dim_param or "?" for axis in axes]
            raise ValueError(f"path_or_model: {value.name!r}: expected shape (…, {features}), got {shape}")
        if value is inputs[0]:
            fixed = [index for index, axis in enumerate(axes[:-1]) if axis.HasField("dim_value")]
            if fixed:
                raise ValueError(
                    f"path_or_model: {value.name!r}: axis {fixed[0]} is fixed at {axes[fixed[0]].dim_value}; "
                    f"expected dynamic leading axes, since {', '.join(map(str, BATCHES))} rows are run"
                )
    if len(set(kinds)) > 1:
        raise ValueError(f"path_or_model: expected input and output of one dtype, got {kinds[0]} and {kinds[1]}")
    if kinds[0] == "bfloat16":
        require("ml_dtypes")
    return np.dtype(kinds[0])


def _stated(model: onnx.ModelProto, formula: str) -> list[str]:
    """Where an operator says another formula: tells them apart even where weights are such that outputs can't."""
    texts = []
    for node in model.graph.node:
        given = {attribute.name: attribute for attribute in node.attribute}
        if node.domain in ("", "ai.onnx") and node.op_type == "Gelu":
            states = given["approximate"].s.decode() if "approximate" in given else "none"
            said = f"approximate={states!r}"
        elif node.domain == forms.CONTRIB and node.op_type in _CONTRIB:
            states, said = _CONTRIB[node.op_type], node.op_type
            if states == "quick" and abs(given["alpha"].f - QUICK_SLOPE if "alpha" in given else 0) > 1e-6:
                texts.append(f"node {node.name!r}: alpha is {given['alpha'].f:.6g}, expected {QUICK_SLOPE}")
        elif node.domain == forms.LOCAL and node.op_type in _LOCAL:
            states, said = _LOCAL[node.op_type], node.op_type
        else:
            continue
        if states != formula:
            texts.append(f"node {node.name!r} states {said}, expected {formula!r}")
    return texts


_CONTRIB = {"Gelu": "none", "BiasGelu": "none", "FastGelu": "tanh", "QuickGelu": "quick"}
_LOCAL = {name: formula for formula, name in forms.LOCAL_NAMES.items()}
