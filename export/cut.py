"""Cuts the part between two tensors out of a model, and finds where the activations of other people's models are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gelu_fast.export import forms
from gelu_fast.export.lazy import require

if TYPE_CHECKING:
    import onnx

_LINEAR = frozenset({"MatMul", "Gemm", "Conv"})
_MOST_NODES = 160  # of one GELU, constants aside; the longest spelling, float64's primitive form, has some 75


def between(model: onnx.ModelProto, before: str, after: str, element: int) -> Any:
    """The nodes that lead from tensor `before` to tensor `after`, as a model of one 1-D input and one output.

    Parameters
    ----------
    model : onnx.ModelProto
        Its functions and opsets are taken along, and the initialisers that the part needs.
    before, after : str
        Of type `element` both.

    Returns
    -------
    onnx.ModelProto or None
        None if the part needs another of the model's inputs as well.
    """
    onnx: Any = require("onnx")
    helper: Any = require("onnx.helper")
    found = _walk(model, after, {before})
    if found is None or before not in found[1]:
        return None
    nodes, read = found
    nodes, read = _without_bias(nodes)
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read and tensor.name != before]
    given = {value.name for value in model.graph.input} - {tensor.name for tensor in kept}
    if (read - {before}) & given:
        return None
    part: Any = helper.make_model(
        helper.make_graph(
            nodes, "activation",
            [helper.make_tensor_value_info(before, element, ["n"])],
            [helper.make_tensor_value_info(after, element, ["n"])],
            kept,
        ),
        ir_version=model.ir_version,
        opset_imports=[onnx.OperatorSetIdProto.FromString(entry.SerializeToString()) for entry in model.opset_import],
        functions=list(model.functions),
    )  # fmt: skip
    return part


def _without_bias(nodes: list[Any]) -> tuple[list[Any], set[str]]:
    """The nodes and what they read; of BiasGelu and FastGelu with a bias, which is the linear layer's, the GELU."""
    out = []
    for node in nodes:
        if node.domain == forms.CONTRIB and node.op_type in forms.WITH_BIAS.values() and len(node.input) > 1:
            bare = type(node)()
            bare.CopyFrom(node)
            del bare.input[1:]
            bare.op_type = "Gelu" if node.op_type == "BiasGelu" else node.op_type
            node = bare
        out.append(node)
    return out, {name for node in out for name in node.input}


def find(model: onnx.ModelProto) -> list[tuple[str, str]]:
    """The tensors (before, after) what stands between two linear layers of the main graph; empty if nothing does."""
    made = {output: node for node in model.graph.node for output in node.output}
    stored = {tensor.name for tensor in model.graph.initializer}
    users: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    sites = []
    for node in model.graph.node:
        if node.op_type not in _LINEAR or not node.input or node.input[0] not in made:
            continue
        after = node.input[0]
        linear = {name for name, maker in made.items() if maker.op_type in _LINEAR}
        found = _walk(model, after, linear)
        starts = [] if found is None else sorted(found[1] & linear)
        if len(starts) != 1:
            continue
        before = starts[0]
        bias = users[before]
        # A bias of the linear layer before isn't the activation's.
        if len(bias) == 1 and bias[0].op_type == "Add" and set(bias[0].input) & stored:
            before = bias[0].output[0]
        if before != after:
            sites.append((before, after))
    return sites


def _walk(model: Any, after: str, stops: set[str]) -> tuple[list[Any], set[str]] | None:
    """The nodes behind a tensor, in order, and every name they read; None if they are more than one GELU has."""
    made = {output: node for node in model.graph.node for output in node.output}
    wanted, seen, taken = [after], set(), set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        node = made.get(name)
        if name in stops or node is None:
            continue
        taken.add(id(node))
        if sum(made[n].op_type != "Constant" for n in seen if n in made and n not in stops) > _MOST_NODES:
            return None
        wanted += [name for name in node.input if name]
    return [node for node in model.graph.node if id(node) in taken], seen
