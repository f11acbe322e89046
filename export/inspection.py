"""`inspect`: every GELU of a model, which formula it is, and what the runtime makes of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from gelu_fast.export import forms, targets
from gelu_fast.export.lazy import require
from gelu_fast.export.loading import load
from gelu_fast.export.sites import Site, find
from gelu_fast.export.standalone import operators_run, standalone

if TYPE_CHECKING:
    import onnx

# Their result has the type of any of their inputs, or of the first.
_SAME_TYPE = {
    "MatMul", "Gemm", "Conv", "Add", "Sub", "Mul", "Div", "Pow", "Neg", "Sqrt", "Exp", "Erf", "Tanh", "Sigmoid", "Relu",
    "Gelu", "Softmax", "LayerNormalization", "Dropout", "ReduceMean", "Reshape", "Transpose", "Unsqueeze", "Squeeze",
    "Flatten", "Slice", "Split", "Concat", "Expand", "Gather", "Identity",
}  # fmt: skip
# onnxruntime's and ONNX's operators that compute a whole GELU.
FUSED = {"Gelu", "FastGelu", "BiasGelu", "QuickGelu"}


@dataclass(frozen=True)
class GeluSite:
    """A GELU in a model.

    Attributes
    ----------
    formula : {"none", "tanh", "quick"}
        By value: what the nodes compute, evaluated numerically, not what they are called.
    spelling : str
        ``"Gelu"``, ``"com.microsoft.BiasGelu"``, ``"function domain.Name"``, or the operators of the chain in order.
    nodes : tuple of str
        Names of the nodes, or of their outputs where they have none.
    dtype : str or None
        Of the input; None if the model doesn't tell.
    scope : str
        ``"main graph"``, ``"function domain.Name"``, or a subgraph: ``"main graph / If name, then_branch"``.
    fused_on_target : bool or None
        Whether the target computes it by one kernel; None if that can't be told (onnxruntime isn't installed).
    input, output : str
        The tensors before and after it.
    runs : tuple of str or None
        What the installed onnxruntime runs in its place; None if it can't load it.
    error : float
        How far its float64 values are from the formula's, relative to max(1, |x|).
    remarks : tuple of str
    """

    formula: str
    spelling: str
    nodes: tuple[str, ...]
    dtype: str | None
    scope: str
    fused_on_target: bool | None
    input: str
    output: str
    runs: tuple[str, ...] | None
    error: float
    remarks: tuple[str, ...]

    def to_json(self) -> str:
        """The attributes as one JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False)


def inspect(path_or_model: str | PathLike[str] | onnx.ModelProto, *, target: str | None = None) -> list[GeluSite]:
    """Find every GELU of a model, in any spelling.

    Parameters
    ----------
    path_or_model : str, PathLike or onnx.ModelProto
        Any ONNX model, those with TensorFlow's Erfc included, which no checker takes.
    target : str, optional
        What `fused_on_target` is about; see `gelu_fast.export.export_ffn`. By default the onnxruntime installed.

    Returns
    -------
    list of GeluSite
        In the order of the graph, subgraphs and functions included.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError
        If the path isn't there, the file is damaged, or an argument is wrong.
    ImportError
        If onnx or onnxscript is missing; names the extra.
    """
    runtimes = targets.meant(target)
    model = read(path_or_model)
    runs: dict[Any, tuple[str, ...] | None] = {}
    return [_describe(model, site, runtimes, runs) for site in find(model)]


def read(path_or_model: Any) -> Any:
    """The ir.Model, types inferred where the model leaves them out."""
    return to_ir(load(path_or_model))


def to_ir(loaded: Any) -> Any:
    """The ir.Model of a `Loaded`."""
    onnx: Any = require("onnx")
    ir: Any = require("onnx_ir")
    proto = loaded.model
    try:
        if not _typed(proto):
            proto = onnx.shape_inference.infer_shapes(proto)
    except Exception:  # whatever the inference raises: types are a help, no more
        proto = loaded.model
    try:
        model = ir.from_proto(proto)
    except Exception as error:  # as above; onnx_ir's own kinds are many
        raise ValueError(f"path_or_model: {loaded.name}: not a graph that can be read: {error}") from error
    for part in (model.graph, *model.functions.values()):
        if "ai.onnx" in part.opset_imports:  # the same domain, spelled out
            part.opset_imports.setdefault("", part.opset_imports.pop("ai.onnx"))
        for node in part.all_nodes():
            node.domain = "" if node.domain == "ai.onnx" else node.domain
    if loaded.folder is not None:
        ir.external_data.set_base_dir(model.graph, str(loaded.folder))
    _infer_further(model.graph)
    return model


def _infer_further(graph: Any) -> None:
    """Types behind onnxruntime's own operators, where onnx's inference stops: in models that onnxruntime saved."""
    ir: Any = require("onnx_ir")
    for node in graph:
        if not node.outputs or node.outputs[0].dtype is not None:
            continue
        operands = [v for v in node.inputs if v is not None and v.dtype is not None]
        to = node.attributes.get("to") if node.op_type == "Cast" else None
        if to is not None and not to.is_ref() and to.value in forms.FLOATS:
            found = {ir.DataType(to.value)}
        elif node.domain in (forms.CONTRIB, forms.LOCAL) and not any(
            w in node.op_type for w in ("Quantize", "QLinear")
        ):
            found = {v.dtype for v in operands if int(v.dtype) in forms.FLOATS}
        elif node.domain in ("", "ai.onnx") and node.op_type in _SAME_TYPE:
            found = {v.dtype for v in operands[:1]}
        else:
            continue
        if len(found) == 1:
            node.outputs[0].type = ir.TensorType(found.pop())


def _typed(proto: Any) -> bool:
    graph = proto.graph
    told = {value.name for part in (graph.value_info, graph.input, graph.output) for value in part}
    nested = any(attribute.HasField("g") for node in graph.node for attribute in node.attribute)
    return not nested and all(name in told for node in graph.node for name in node.output if name)


def dtype_of(model: Any, site: Site) -> str | None:
    """The type of a site's input: told by the model or, failing that, by the constants of a chain without Casts."""
    ir: Any = require("onnx_ir")
    for value in (site.entry, site.output, site.bias):
        if value is not None and value.dtype is not None:
            return forms.FLOATS.get(int(value.dtype))
    if any(node.op_type in ("Cast", "CastLike") for node in site.nodes):
        return None
    for node in site.nodes:
        for operand in node.inputs:
            tensor = None if operand is None else ir.convenience.get_const_tensor(operand)
            if tensor is not None:
                return forms.FLOATS.get(int(tensor.dtype))
    return None


def _describe(
    model: Any, site: Site, runtimes: tuple[targets.Runtime, ...], known: dict[Any, tuple[str, ...] | None]
) -> GeluSite:
    """`known`: what runs in place of the sites seen so far. A large model has many that are alike."""
    dtype = dtype_of(model, site)
    runs, fused = None, None
    remarks = list(site.remarks)
    if any(n.op_type == "Erfc" for n in site.nodes):
        remarks.append("Erfc is no operator of ONNX: no runtime loads this model; rewrite repairs it")
    try:
        require("onnxruntime")
    except ImportError:
        pass
    else:
        key = (site.spelling, site.numbers, dtype, site.bias is None)
        if key not in known:
            known[key] = _runs(model, site, dtype or "float32")
        runs = known[key]
        fused = runs is not None and any(name.rpartition(".")[2] in FUSED for name in runs)
        # What the installed runtime fuses the others do too (tests/deploy/probe.py), but for the standard operator.
        fused = fused and (site.spelling != "Gelu" or all(row.native for row in runtimes))
    return GeluSite(
        formula=site.formula,
        spelling=site.spelling,
        nodes=tuple(node.name or node.outputs[0].name for node in site.nodes),
        dtype=dtype,
        scope=site.scope,
        fused_on_target=fused,
        input=str(site.entry.name),
        output=str(site.output.name),
        runs=runs,
        error=site.error,
        remarks=tuple(remarks),
    )


def _runs(model: Any, site: Site, dtype: str) -> tuple[str, ...] | None:
    element = forms.element_type(dtype)
    try:
        return operators_run(standalone(model, site, element))
    except Exception:  # a graph too odd to stand alone; onnx, onnx_ir and protobuf each have their own words for it
        return None
