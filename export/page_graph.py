"""A model's graph as plain data, for the page that draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gelu_fast.export import graph
from gelu_fast.export.lazy import require

if TYPE_CHECKING:
    import onnx


def describe(model: onnx.ModelProto) -> dict[str, Any]:
    """Nodes, values and what is stored, all of them texts, numbers and lists.

    Returns
    -------
    dict
        ``inputs`` and ``outputs``: names. ``nodes``: each ``op``, ``name``, ``inputs``, ``outputs`` (names),
        ``attributes`` (a text) and ``gelu`` (whether it belongs to a GELU, where the model is ours). ``values``: name
        to ``shape`` (a text), ``dtype`` and, for what's stored, ``stored`` (its value where it is a single number).
    """
    onnx: Any = require("onnx")
    try:
        typed = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # whatever the inference raises: shapes are a help, no more
        typed = model
    values: dict[str, dict[str, Any]] = {}
    for value in (*typed.graph.input, *typed.graph.output, *typed.graph.value_info):
        kind = value.type.tensor_type
        axes = [axis.dim_param or str(axis.dim_value if axis.HasField("dim_value") else "?") for axis in kind.shape.dim]
        values[value.name] = {"shape": " × ".join(axes), "dtype": _dtype(kind.elem_type)}
    stored = list(model.graph.initializer)
    nodes = []
    inside = _inside(model)
    for number, node in enumerate(model.graph.node):
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            tensor = onnx.TensorProto()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            stored.append(tensor)
            continue
        nodes.append({
            "op": f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type,
            "name": node.name,
            "inputs": [name for name in node.input if name],
            "outputs": [name for name in node.output if name],
            "attributes": ", ".join(f"{a.name}={_attribute(a)}" for a in node.attribute),
            "gelu": number in inside,
        })  # fmt: skip
    for tensor in stored:
        values[tensor.name] = {
            "shape": " × ".join(map(str, tensor.dims)), "dtype": _dtype(tensor.data_type), "stored": _number(tensor),
        }  # fmt: skip
    names = {tensor.name for tensor in model.graph.initializer}
    return {
        "inputs": [value.name for value in model.graph.input if value.name not in names],
        "outputs": [value.name for value in model.graph.output],
        "nodes": nodes,
        "values": values,
    }


def _inside(model: onnx.ModelProto) -> set[int]:
    """The nodes between the tensors before and after each GELU."""
    found: set[int] = set()
    nodes = list(model.graph.node)
    for before, after in graph.activations(model):
        reached = {before}
        forward = set()
        for number, node in enumerate(nodes):  # in topological order
            if reached & set(node.input):
                reached |= set(node.output)
                forward.add(number)
        needed = {after}
        for number in range(len(nodes) - 1, -1, -1):
            if number in forward and needed & set(nodes[number].output):
                needed |= set(nodes[number].input)
                found.add(number)
    return found


def _dtype(element: int) -> str:
    name = str(require("onnx").TensorProto.DataType.Name(element)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def _number(tensor: Any) -> str:
    """The value of a single number; else nothing."""
    onnx: Any = require("onnx")
    if tensor.data_location == onnx.TensorProto.EXTERNAL or list(tensor.dims) not in ([], [1]):
        return ""
    return f"{float(onnx.numpy_helper.to_array(tensor).reshape(())):.6g}"


def _attribute(attribute: Any) -> str:
    value = require("onnx").helper.get_attribute_value(attribute)
    if attribute.name == "to" and isinstance(value, int):  # Cast's
        return _dtype(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(list(value)) if isinstance(value, (list, tuple)) or hasattr(value, "__len__") else str(value)
