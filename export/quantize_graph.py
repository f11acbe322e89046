"""Small operations on a graph that onnx and onnxruntime's tools lack or get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gelu_fast.export.lazy import require

STANDARD = ("", "ai.onnx")
GELUS = ("Gelu", "FastGelu", "BiasGelu", "QuickGelu")  # com.microsoft's, and the standard one
_SMALL = 1024  # elements of a tensor that may say a shape


def copied(message: Any) -> Any:
    """A copy of any protobuf message."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def all_nodes(graph: Any) -> Iterator[Any]:
    """Nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for sub in _subgraphs(node):
            yield from all_nodes(sub)


def _subgraphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def reads(node: Any) -> set[str]:
    """The names that a node reads, its subgraphs too (their own among them)."""
    found = set(node.input)
    for sub in _subgraphs(node):
        found |= {value.name for value in sub.output}
        for inner in sub.node:
            found |= reads(inner)
    return found


def name_nodes(model: Any) -> None:
    """Give every node of the graph and its subgraphs a name of its own; the quantisers choose nodes by name."""
    taken: set[str] = set()
    for number, node in enumerate(all_nodes(model.graph)):
        if not node.name or node.name in taken:
            name = f"{node.name or node.op_type}_{number}"
            while name in taken:
                name += "_"
            node.name = name
        taken.add(node.name)


def replace_nodes(graph: Any, nodes: list[Any]) -> None:
    """Put other nodes into a graph; they may be its own."""
    copies = [copied(node) for node in nodes]
    graph.ClearField("node")
    graph.node.extend(copies)


def sort_nodes(graph: Any) -> None:
    """Order nodes after what they read; onnxruntime's tools forget what subgraphs read."""
    waiting = list(graph.node)
    made = {name for node in waiting for name in node.output if name}
    done: list[Any] = []
    while waiting:
        rest = []
        for node in waiting:
            if reads(node) & made - set(node.output):
                rest.append(node)
            else:
                done.append(node)
                made -= set(node.output)
        if len(rest) == len(waiting):
            raise ValueError(f"path: the graph has a cycle through {rest[0].op_type} {rest[0].name!r}")
        waiting = rest
    replace_nodes(graph, done)


def add_types(model: Any) -> None:
    """Add the inferred types, and those behind com.microsoft's GELUs, which onnx knows nothing of.

    Without them onnxruntime's dynamic quantiser gives up, and its float16 converter forgets the Casts around a GELU.
    """
    skeleton = copied(model)
    graph, fed = skeleton.graph, {value.name for value in skeleton.graph.input}
    graph.ClearField("initializer")
    helper: Any = require("onnx.helper")
    for tensor in model.graph.initializer:  # large ones as inputs, so that inference doesn't carry them about
        size = 1
        for length in tensor.dims:
            size *= length
        if size <= _SMALL:
            graph.initializer.add().CopyFrom(tensor)
        elif tensor.name not in fed:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    missing = [n for n in graph.node if n.op_type in GELUS and n.domain == "com.microsoft"]
    while True:
        skeleton = require("onnx.shape_inference").infer_shapes(skeleton)
        graph = skeleton.graph
        known = {v.name: v for v in (*graph.input, *graph.value_info, *graph.output) if v.type.tensor_type.elem_type}
        ready = [n for n in missing if n.output[0] not in known and n.input[0] in known]
        if not ready:
            break
        for node in ready:
            graph.value_info.add(name=node.output[0], type=known[node.input[0]].type)
    infos = [copied(value) for value in graph.value_info]
    model.graph.ClearField("value_info")
    model.graph.value_info.extend(infos)


def drop_unused(graph: Any, tensors: set[str]) -> None:
    """Remove Transpose and Identity nodes that nobody reads, and those of `tensors` that nobody reads."""
    outputs = {value.name for value in graph.output}
    while True:
        read = outputs.union(*(reads(node) for node in graph.node))
        rest = [n for n in graph.node if n.op_type not in ("Transpose", "Identity") or set(n.output) & read]
        if len(rest) == len(graph.node):
            break
        replace_nodes(graph, rest)
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name in tensors - read:
            del graph.initializer[index]
