"""Which stored matrix a product uses, through Transpose and Identity, and who else needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gelu_fast.export.lazy import require
from gelu_fast.export.quantize_graph import STANDARD, all_nodes, copied, replace_nodes
from gelu_fast.export.quantize_report import KeptNode

PRODUCTS = ("MatMul", "Gemm")


@dataclass
class Use:
    """One product, as it stood in the model."""

    node: Any
    root: str
    turned: bool
    weight: str = ""  # the initialiser of the prepared model


class Weights:
    """Which stored matrix a name stands for."""

    def __init__(self, graph: Any) -> None:
        fed = {value.name for value in graph.input}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.overridable = fed & self.initializers.keys()
        self._producers = {name: node for node in graph.node for name in node.output if name}

    def find(self, name: str) -> tuple[str, bool] | None:
        """(stored tensor, whether transposed); None if it is computed."""
        turned = False
        while name not in self.initializers:
            node = self._producers.get(name)
            if node is None or node.domain not in STANDARD:
                return None
            if node.op_type == "Transpose":
                perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
                if perm not in (None, [1, 0]):
                    return None
                turned = not turned
            elif node.op_type != "Identity":
                return None
            name = node.input[0]
        return None if name in self.overridable else (name, turned)


def lift_constants(model: Any) -> None:
    """Constant nodes that hold matrices become initialisers of the same name."""
    graph = model.graph
    rest = []
    for node in graph.node:
        value = next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)
        if node.op_type == "Constant" and node.domain in STANDARD and value is not None and len(value.dims) == 2:
            graph.initializer.add().CopyFrom(value)
            graph.initializer[-1].name = node.output[0]
        else:
            rest.append(node)
    if len(rest) < len(graph.node):
        replace_nodes(graph, rest)


def choose(model: Any, weights: Weights) -> tuple[list[Use], list[KeptNode]]:
    """The products to quantise, and every other node with the reason."""
    uses: list[Use] = []
    kept: list[KeptNode] = []
    top = {node.name for node in model.graph.node}
    for node in all_nodes(model.graph):
        if node.op_type not in PRODUCTS or node.domain not in STANDARD:
            kept.append(KeptNode(node.name, node.op_type, "no product with a stored matrix"))
            continue
        reason, found = _why_not(node, weights) if node.name in top else ("stands in a subgraph", None)
        if reason or found is None:
            kept.append(KeptNode(node.name, node.op_type, reason))
        else:
            turned = found[1] != bool(_attributes(node).get("transB", 0))
            uses.append(Use(copied(node), found[0], turned))
    return uses, kept


def _attributes(node: Any) -> dict[str, Any]:
    helper: Any = require("onnx.helper")
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _why_not(node: Any, weights: Weights) -> tuple[str, tuple[str, bool] | None]:
    float32 = require("onnx").TensorProto.FLOAT
    found = weights.find(node.input[1])
    if found is None:
        return "the second factor is computed, or may be fed, and isn't a stored matrix", None
    tensor = weights.initializers[found[0]]
    if len(tensor.dims) != 2 or 0 in tensor.dims:
        return f"the weight {tensor.name!r} has the shape {tuple(tensor.dims)}; matrices are served", None
    if tensor.data_type != float32:
        kind = require("onnx").TensorProto.DataType.Name(tensor.data_type).lower()
        return f"the weight {tensor.name!r} is {kind}; float32 is served", None
    found_attributes = _attributes(node) if node.op_type == "Gemm" else {}
    for name, plain in (("transA", 0), ("alpha", 1.0), ("beta", 1.0)):
        value = found_attributes.get(name, plain)
        if value != plain:
            return f"Gemm has {name} {value:g}; {plain:g} is served", None
    return "", found


def other_users(model: Any, uses: list[Use], weights: Weights) -> dict[str, str]:
    """What else reads a weight that is to be quantised: node or graph output."""
    chosen = {use.node.name for use in uses}
    roots = {use.root for use in uses}
    found: dict[str, str] = {}
    top = {node.name for node in model.graph.node}
    for node in all_nodes(model.graph):
        if node.op_type in ("Transpose", "Identity") and node.domain in STANDARD and node.name in top:
            continue  # its own readers count
        for place, name in enumerate(node.input):
            at = weights.find(name)
            if at is not None and at[0] in roots and not (node.name in chosen and place == 1):
                found.setdefault(at[0], f"{node.op_type} {node.name!r}")
    for value in model.graph.output:
        at = weights.find(value.name)
        if at is not None and at[0] in roots:
            found.setdefault(at[0], f"output {value.name!r}")
    return found
