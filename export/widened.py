"""A copy of a bfloat16 model that onnxruntime's CPU provider can run: every node in float32 between two Casts.

The provider has no MatMul, Add, Erf or Tanh in bfloat16, only Casts to and from it. Casting each node's inputs up and
its outputs down keeps the model's own roundings, one per node, and its own tensors: it is the model's arithmetic in all
but the sums inside a node, which are float32's, as they are on hardware that has bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gelu_fast.export.lazy import require

if TYPE_CHECKING:
    import onnx

# Nodes that need no kernel for the type, or state it themselves.
_KEPT = frozenset({"Cast", "Constant"})


def float32_copy(model: onnx.ModelProto) -> Any:
    """The copy; its input and output are float32, and external tensors still stand where they did.

    Raises
    ------
    ValueError
        If the model has subgraphs, which aren't served.
    """
    onnx: Any = require("onnx")
    helper: Any = require("onnx.helper")
    wide, narrow = onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16
    copy = onnx.ModelProto()
    copy.CopyFrom(require("onnx.inliner").inline_local_functions(model) if model.functions else model)
    kinds = _kinds(copy)
    graph = copy.graph
    renamed: dict[str, str] = {}
    nodes: list[Any] = []
    widened: dict[str, str] = {}

    def cast(name: str, output: str, to: int) -> str:
        nodes.append(helper.make_node("Cast", [name], [output], name=f"widened/{output}", to=to))
        return output

    stored = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name not in stored and kinds.get(value.name) == narrow:
            value.type.tensor_type.elem_type = wide
            renamed[value.name] = cast(value.name, f"{value.name}.bfloat16", narrow)
    for value in graph.output:
        if kinds.get(value.name) == narrow:
            value.type.tensor_type.elem_type = wide
            renamed[value.name] = f"{value.name}.bfloat16"
    outputs = [value.name for value in graph.output]
    for node in graph.node:
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise ValueError(f"path_or_model: node {node.name!r} has a subgraph, which isn't served in bfloat16")
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        after: list[tuple[str, str]] = []
        for index, name in enumerate(node.input):
            changed.input[index] = renamed.get(name, name)
            if node.op_type not in _KEPT and kinds.get(name) == narrow:
                if name not in widened:
                    widened[name] = cast(renamed.get(name, name), f"{name}.float32", wide)
                changed.input[index] = widened[name]
        for index, name in enumerate(node.output):
            changed.output[index] = renamed.get(name, name)
            if node.op_type not in _KEPT and kinds.get(name) == narrow:
                after.append((f"{name}.wide", renamed.get(name, name)))
                changed.output[index] = after[-1][0]
        nodes.append(changed)
        for before, name in after:
            cast(before, name, narrow)
    for name in outputs:
        if name in renamed:
            cast(renamed[name], name, wide)
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]  # they state the old types
    return copy


def _kinds(model: Any) -> dict[str, int]:
    """Element type by tensor name; where inference knows nothing (com.microsoft), that of the node's first input."""
    inferred = require("onnx.shape_inference").infer_shapes(model).graph
    kinds = {tensor.name: int(tensor.data_type) for tensor in inferred.initializer}
    for value in (*inferred.input, *inferred.output, *inferred.value_info):
        kinds[value.name] = int(value.type.tensor_type.elem_type)
    for node in model.graph.node:
        for name in node.output:
            if node.op_type == "Cast":
                kinds[name] = next(int(attribute.i) for attribute in node.attribute if attribute.name == "to")
            elif not kinds.get(name) and node.input:
                kinds[name] = kinds.get(node.input[0], 0)
    return kinds
