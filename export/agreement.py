"""Whether two models, one made from the other, give the same results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gelu_fast.export import forms
from gelu_fast.export.lazy import require
from gelu_fast.export.loading import Loaded, is_external, tensors
from gelu_fast.export.reference import gelu64
from gelu_fast.forms import QUICK_SLOPE

if TYPE_CHECKING:
    import onnx

_BATCHES = (1, 3)  # for every dynamic axis
_LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")
# Of the largest value in an output: spellings differ by a few roundings, layers after them add theirs.
_TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 1e-2, "bfloat16": 6e-2}
_NAMES = {10: "float16", 16: "bfloat16"}
_TOLERANCE_CHANGED = 5e-2  # between two formulas, to catch what is wrong altogether


@dataclass(frozen=True)
class Agreement:
    """What came out.

    Attributes
    ----------
    passed : bool
    max_abs : float or None
        Largest difference of any output; None if nothing could be run.
    by : tuple of str
        What ran them: "onnxruntime, all optimisations" and so on.
    reason : str
        Why it didn't pass, or what was not run and why.
    """

    passed: bool
    max_abs: float | None
    by: tuple[str, ...]
    reason: str


def compare_models(original: Loaded, made: onnx.ModelProto, *, changed: bool = False, seed: int = 0) -> Agreement:
    """Run both on random inputs, by onnxruntime at two levels and by the reference evaluator where those can.

    changed: the formula was changed on purpose, so the results may differ as formulas do.
    """
    coarsest = _coarsest(original.model)
    inputs = [inputs_for(original.model, size, seed) for size in _BATCHES]
    largest: float | None = None
    by: list[str] = []
    reasons: list[str] = []
    folder = None if original.folder is None else str(original.folder)
    for name, run in _runners(folder):
        try:
            before = [run(original.model, x) for x in inputs]
            again = run(original.model, inputs[0])
        except Exception as error:  # whatever a runtime throws at a model it can't take
            reasons.append(f"{name} can't run the original ({_short(error)})")
            continue
        if not all(map(_equal, before[0], again)):
            reasons.append(f"by {name} the original gives other results each time: it has random numbers in it")
            continue
        try:
            after = [run(made, x) for x in inputs]
        except Exception as error:  # as above
            reason = f"{name} runs the original, but not the result: {_short(error)}"
            return Agreement(False, largest, tuple(by), reason)
        by.append(name)
        for old, new in zip(before, after, strict=True):
            for a, b in zip(old, new, strict=True):
                off, allowed = _difference(np.asarray(a), np.asarray(b), max(coarsest, _TOLERANCE_CHANGED * changed))
                largest = max(largest or 0.0, off)
                if not off <= allowed:
                    reason = f"by {name} they differ by {off:.3g}, at most {allowed:.3g} is explained by rounding"
                    if np.shape(a) != np.shape(b):
                        reason = f"by {name} a result has shape {np.shape(b)} instead of {np.shape(a)}"
                    return Agreement(False, off, tuple(by), reason)
    return Agreement(True, largest, tuple(by), "; ".join(reasons))


def _equal(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b), equal_nan=np.asarray(a).dtype.kind == "f")


def _coarsest(model: onnx.ModelProto) -> float:
    """The tolerance of the coarsest type that numbers pass through on their way."""
    found = {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    found |= {tensor.data_type for tensor in tensors(model)}
    nodes = (node for part in (model.graph, *model.functions) for node in part.node)
    found |= {a.i for node in nodes if node.op_type == "Cast" for a in node.attribute if a.name == "to"}
    return max((_TOLERANCE[name] for number, name in _NAMES.items() if number in found), default=0.0)


def _difference(a: Any, b: Any, least: float) -> tuple[float, float]:
    if a.dtype != b.dtype or a.shape != b.shape:
        return float("inf"), 0.0
    if not a.size or a.dtype.kind not in "fV":
        return float(not np.array_equal(a, b)), 0.0
    share = max(_TOLERANCE.get(a.dtype.name, 2e-5), least)
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0, share
    finite = np.abs(a[np.isfinite(a)])
    return float(np.abs(a - b)[~same].max()), share * float(finite.max(initial=1.0))


def _runners(folder: str | None) -> list[tuple[str, Any]]:
    found = []
    try:
        runtime: Any = require("onnxruntime")
    except ImportError:
        pass
    else:
        found = [(f"onnxruntime, {level}", _ort(runtime, level, folder)) for level in _LEVELS]
    return [*found, ("onnx's reference evaluator", _evaluator(folder))]


def _ort(runtime: Any, level: str, folder: str | None) -> Any:
    def run(model: onnx.ModelProto, x: dict[str, Any]) -> list[Any]:
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
        if folder is not None and is_external(model):
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, x))

    return run


def _evaluator(folder: str | None) -> Any:
    reference: Any = require("onnx.reference")

    def run(model: onnx.ModelProto, x: dict[str, Any]) -> list[Any]:
        if folder is not None and is_external(model):
            whole = type(model)()
            whole.CopyFrom(model)
            require("onnx.external_data_helper").load_external_data_for_model(whole, folder)
            model = whole
        if model.functions:  # in a function the evaluator forgets new_ops
            model = require("onnx.inliner").inline_local_functions(model)
        return list(reference.ReferenceEvaluator(model, new_ops=_operators_of_others()).run(None, x))

    return run


@cache
def _operators_of_others() -> list[Any]:
    """The operators that ONNX lacks: TensorFlow's Erfc and onnxruntime's GELUs, in float64."""
    base: Any = require("onnx.reference.op_run").OpRun
    erfc = np.frompyfunc(math.erfc, 1, 1)

    def make(name: str, domain: str, function: Callable[..., Any]) -> Any:
        def _run(self: Any, *inputs: Any, **attributes: Any) -> tuple[Any]:
            wide = [np.asarray(x, np.float64) for x in inputs if x is not None]
            return (np.asarray(function(*wide, **attributes), inputs[0].dtype),)

        return type(name, (base,), {"op_domain": domain, "_run": _run})

    def gelu(form: str) -> Callable[..., Any]:
        return lambda x, bias=0.0, **_: gelu64(np.asarray(x + bias), form)

    def quick(x: Any, alpha: float = QUICK_SLOPE) -> Any:
        return gelu64(np.asarray(x * (alpha / QUICK_SLOPE)), "quick") * (QUICK_SLOPE / alpha)

    return [
        make("Erfc", "", erfc),
        make("Gelu", forms.CONTRIB, gelu("none")),
        make("BiasGelu", forms.CONTRIB, gelu("none")),
        make("FastGelu", forms.CONTRIB, gelu("tanh")),
        make("QuickGelu", forms.CONTRIB, quick),
    ]


def inputs_for(model: onnx.ModelProto, size: int, seed: int = 0) -> dict[str, Any]:
    """Random inputs of a model's types and shapes; `size` for every dynamic axis."""
    helper: Any = require("onnx.helper")
    rng = np.random.default_rng(seed)
    stored = {tensor.name for tensor in model.graph.initializer}
    out = {}
    for value in model.graph.input:
        if value.name in stored:
            continue
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type"):
            raise ValueError(f"verify: input {value.name!r} isn't a tensor, so no values can be made up for it")
        shape = [axis.dim_value if axis.HasField("dim_value") else size for axis in kind.shape.dim]
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if dtype.kind in "iub":
            out[value.name] = rng.integers(0, 2, shape).astype(dtype)  # ids, masks and flags
        else:
            out[value.name] = rng.standard_normal(shape).astype(dtype)
    return out


def _short(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
