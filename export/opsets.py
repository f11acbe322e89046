"""The opset of a model, and its change by onnx.version_converter."""

from __future__ import annotations

from typing import Any

from gelu_fast.export import forms
from gelu_fast.export.lazy import require

_COVER = "gelu_fast.standard"
_SPLIT, _IDENTITY = 18, 16  # the opsets whose Split and Identity the converter can't lower
_FLOAT8 = 17  # TensorProto's number of the first type of 8 bits
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


def to_proto(model: Any) -> Any:
    """The ir.Model as a ModelProto; ValueError if it can't be written, as a hostile one may not."""
    ir: Any = require("onnx_ir")
    try:
        return ir.to_proto(model)
    except Exception as error:  # onnx_ir's own kinds are many
        raise ValueError(f"path_or_model: not a graph that can be written: {error}") from error


def converted(model: Any, opset: int, loaded: Any) -> Any:
    """The ir.Model as a ModelProto of another opset; its large tensors go around the converter.

    Raises
    ------
    ValueError
        With the converter's reason.
    """
    converter: Any = require("onnx.version_converter")
    others = [f"{f.domain}.{f.name}" for f in model.functions.values() if f.domain != forms.LOCAL]
    if others:
        names = ", ".join(others)
        raise ValueError(f"opset: {opset} can't be had, since the model has functions of its own, which "
                         f"onnx.version_converter doesn't know: {names}")  # fmt: skip
    if opset < opset_of(model):
        _lower(model, opset)
    proto = to_proto(model)
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
    uncover(out.graph)
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
    imports = {entry.domain: entry.version for entry in (*proto.opset_import, *out.opset_import)}
    imports = {domain: version for domain, version in imports.items() if domain not in (_COVER, "ai.onnx")}
    del out.opset_import[:]
    out.opset_import.extend(helper.make_opsetid(*entry) for entry in imports.items())
    return out


def _lower(model: Any, opset: int) -> None:
    """Do what the converter can't do on the way down, and cover what's done: Split of opset 18, Identity of 16 (which
    takes optional values too), attributes of Cast."""
    tensor: Any = require("onnx_ir").TensorType
    for node in model.graph.all_nodes():
        if node.domain != "":
            continue
        to = node.attributes.get("to")
        if node.op_type == "Cast" and to is not None and not to.is_ref() and to.value < _FLOAT8:
            for name, first in (("saturate", 19), ("round_mode", 24)):
                if opset < first:  # they say something of the float8 types alone
                    node.attributes.pop(name, None)
        split = node.op_type == "Split" and opset < _SPLIT <= opset_of(model) and _equal_parts(node)
        if split:
            node.attributes.pop("num_outputs", None)
        identity = node.op_type == "Identity" and opset < _IDENTITY <= opset_of(model)
        if split or (identity and isinstance(node.inputs[0].type, tensor | None)):
            node.domain = _COVER
            model.graph.opset_imports[_COVER] = 1


def _equal_parts(node: Any) -> bool:
    """Whether a Split of opset 18 does the same without `num_outputs`: the parts are given, or equal."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return True
    shape, axis = node.inputs[0].shape, node.attributes.get("axis")
    place = 0 if axis is None else axis.value
    size = shape[place] if shape is not None and -len(shape) <= place < len(shape) else None
    return isinstance(size, int) and size % len(node.outputs) == 0


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
            for inner in [attribute.g] if attribute.HasField("g") else [*attribute.graphs]:
                uncover(inner)


def tidy(proto: Any, original: Any) -> None:
    """Leave out what was added on the way, inferred types, and put back what onnx_ir and the converter forget."""
    stated = {value.name for value in original.graph.value_info}
    kept = [value for value in proto.graph.value_info if value.name in stated]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend(kept)
    if not proto.training_info:
        proto.training_info.extend(original.training_info)
    for field in ("quantization_annotation", "metadata_props"):
        if not getattr(proto.graph, field):
            getattr(proto.graph, field).extend(getattr(original.graph, field))
    for field in ("node", "initializer", "input", "output"):
        old = {_name(part): part for part in getattr(original.graph, field)}
        for part in getattr(proto.graph, field):
            before = old.get(_name(part))
            if before is not None:
                if before.doc_string and not part.doc_string:
                    part.doc_string = before.doc_string
                if not part.metadata_props:
                    part.metadata_props.extend(before.metadata_props)


def _name(part: Any) -> str:
    """Of a node, that of its first output: its own may be anything."""
    return str(next(iter(part.output), "")) if hasattr(part, "output") else str(part.name)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
