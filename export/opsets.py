"""The opset of a model, and its change by onnx.version_converter."""

from __future__ import annotations

from typing import Any

from gelu_fast.export import forms
from gelu_fast.export.lazy import require

_COVER = "gelu_fast.standard"
_LARGE = 1024  # bytes; what's larger needn't be seen by the converter


def opset_of(model: Any) -> int:
    """The standard operators' version that an ir.Model imports."""
    imports = model.graph.opset_imports
    found = imports.get("", imports.get("ai.onnx"))
    if found is None:
        raise ValueError("path_or_model: the model imports no version of the standard operators")
    return int(found)


def check(opset: Any, form: str) -> None:
    """Raise if a form isn't to be had at an opset."""
    newest = int(require("onnx.defs").onnx_opset_version())
    lowest = forms.FIRST_OPSET[form]
    if isinstance(opset, bool) or not isinstance(opset, int):
        raise TypeError(f"opset: expected a whole number, got {opset!r}")
    if not lowest <= opset <= newest:
        others = ", ".join(repr(f) for f in forms.FORMS if forms.FIRST_OPSET[f] <= opset)
        hint = f"; {others} would do at opset {opset}" if others and opset < lowest else ""
        raise ValueError(f"opset: {form!r} needs one from {lowest} to {newest}, got {opset}{hint}")


def converted(model: Any, opset: int, loaded: Any) -> Any:
    """The ir.Model as a ModelProto of another opset; its large tensors go around the converter.

    Raises
    ------
    ValueError
        With the converter's reason.
    """
    ir: Any = require("onnx_ir")
    converter: Any = require("onnx.version_converter")
    others = [f"{f.domain}.{f.name}" for f in model.functions.values() if f.domain != forms.LOCAL]
    if others:
        names = ", ".join(others)
        raise ValueError(f"opset: {opset} can't be had, since the model has functions of its own, which "
                         f"onnx.version_converter doesn't know: {names}")  # fmt: skip
    proto = ir.to_proto(model)
    functions = [type(f).FromString(f.SerializeToString()) for f in proto.functions]
    del proto.functions[:]
    kept = {}
    for tensor in proto.graph.initializer:
        if tensor.data_location == tensor.EXTERNAL or tensor.ByteSize() > _LARGE:
            whole = type(tensor)()
            whole.CopyFrom(tensor)
            kept[tensor.name] = whole
    given = {value.name for value in proto.graph.input}
    light = [t for t in proto.graph.initializer if t.name not in kept]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(light)
    helper: Any = require("onnx.helper")
    # Without its data a tensor is an input of the graph.
    proto.graph.input.extend(
        helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
        for name, tensor in kept.items()
        if name not in given
    )
    try:
        out = converter.convert_version(proto, opset)
    except Exception as error:  # RuntimeError, and what its C++ throws besides
        raise ValueError(f"opset: {opset} can't be had from {opset_of(model)}: {_first_line(error)}") from error
    order = {tensor.name: place for place, tensor in enumerate(loaded.model.graph.initializer)}
    tensors = [*out.graph.initializer, *kept.values()]
    inputs = [value for value in out.graph.input if value.name in given or value.name not in kept]
    del out.graph.initializer[:], out.graph.input[:]
    out.graph.initializer.extend(sorted(tensors, key=lambda t: order.get(t.name, len(order))))
    out.graph.input.extend(inputs)
    # The converter forgets these.
    for name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(out, name, getattr(proto, name))
    del out.metadata_props[:]
    out.metadata_props.extend(proto.metadata_props)
    least = helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    out.ir_version = max(proto.ir_version, least) if opset > opset_of(model) else proto.ir_version
    for function in functions:  # ours: the fusable chain is the same at every opset
        for entry in function.opset_import:
            entry.version = opset if entry.domain == "" else entry.version
    out.functions.extend(functions)
    domains = {entry.domain for entry in out.opset_import} | {_COVER}
    out.opset_import.extend(e for e in proto.opset_import if e.domain not in domains and e.domain != "ai.onnx")
    return out


def cover(graph: Any) -> None:
    """Put the standard Gelu of an ir.Graph into another domain, which the converter leaves alone."""
    for node in graph:
        if node.op_type == "Gelu" and node.domain == "":
            node.domain = _COVER


def uncover(graph: Any) -> None:
    """Undo `cover` in a GraphProto, subgraphs included."""
    for node in graph.node:
        if node.domain == _COVER:
            node.domain = ""
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else [*attribute.graphs]):
                uncover(inner)


def tidy(proto: Any, original: Any) -> None:
    """Leave out what was added on the way: inferred types that the original didn't state."""
    stated = {value.name for value in original.graph.value_info}
    kept = [value for value in proto.graph.value_info if value.name in stated]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(kept)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
