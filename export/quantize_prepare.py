"""Finds the products x @ W with a stored W, and writes each so that onnxruntime's quantisers take it.

They know MatMul with an initialiser in place. So Gemm becomes MatMul + Add (int4 would skip it without a word), and a
weight that comes through a Transpose is stored turned. Static quantisation wants the opposite for 2-D inputs:
onnxruntime 1.32 fuses MatMul + Add to Gemm before it looks for integer products, and then computes in float, 9 times
slower than QGemm for one row of 512→2048→512 (490 times with a scale per column); so there the pair becomes a Gemm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gelu_fast.export.lazy import require
from gelu_fast.export.quantize_graph import (
    STANDARD,
    add_types,
    all_nodes,
    copied,
    drop_unused,
    name_nodes,
    replace_nodes,
)
from gelu_fast.export.quantize_report import KeptNode
from gelu_fast.export.quantize_weights import PRODUCTS, Use, Weights, choose, lift_constants, other_users


@dataclass
class Prepared:
    """A model that the quantisers take.

    Attributes
    ----------
    model : onnx.ModelProto
    uses : list of Use
        What is to be quantised.
    excluded : list of str
        Every other MatMul, in subgraphs too.
    kept : list of KeptNode
    steps, ties : list of str
    copies : dict
        A weight that stands beside its transpose for the quantiser's sake, to the name of the latter.
    """

    model: Any
    uses: list[Use] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    kept: list[KeptNode] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    ties: list[str] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)


def inline(model: Any, steps: list[str]) -> Any:
    """The model without functions of its own, whose insides the quantisers don't see."""
    if not model.functions:
        return model
    names = ", ".join(f"{f.domain}.{f.name}" for f in model.functions)
    steps.append(f"the model's own functions are inlined: {names}")
    return require("onnx.inliner").inline_local_functions(model)


def prepare(model: Any, method: str, untie: bool) -> Prepared:
    """Choose the products and rewrite them, in a copy.

    Parameters
    ----------
    model : onnx.ModelProto
        All tensors inside.
    method : str
        One of `gelu_fast.export.quantize_methods.METHODS` but float16.
    untie : bool
        Whether a weight that can't stay shared may be stored once for each use.

    Raises
    ------
    ValueError
        If there is nothing to quantise, a shared weight can't stay so, or a weight isn't finite.
    """
    steps: list[str] = []
    copy = inline(copied(model), steps)
    name_nodes(copy)
    lift_constants(copy)
    add_types(copy)
    done = Prepared(copy, steps=steps)
    weights = Weights(copy.graph)
    done.uses, done.kept = choose(copy, weights)
    done.excluded = [node.name for node in done.kept if node.operator in PRODUCTS]
    if not done.uses:
        reasons = "; ".join(f"{n.operator} {n.name!r}: {n.reason}" for n in done.kept if n.operator in PRODUCTS)
        raise ValueError(f"path: nothing that {method!r} quantises: {reasons or 'there is no MatMul and no Gemm'}")
    _check_finite(done, weights)
    others = other_users(copy, done.uses, weights)
    _check_ties(done, others, method, untie)
    _rewrite(done, weights, others, method)
    return done


def _check_finite(done: Prepared, weights: Weights) -> None:
    helper: Any = require("onnx.numpy_helper")
    for name in dict.fromkeys(use.root for use in done.uses):
        if not np.isfinite(helper.to_array(weights.initializers[name])).all():
            raise ValueError(
                f"path: tensor {name!r} holds nan or infinities, which have no integer; expected finite weights"
            )


def _check_ties(done: Prepared, others: dict[str, str], method: str, untie: bool) -> None:
    per_block = method not in ("dynamic", "static")
    for root in dict.fromkeys(use.root for use in done.uses):
        uses = [use for use in done.uses if use.root == root]
        nodes = " and ".join(f"{use.node.op_type} {use.node.name!r}" for use in uses)
        both = len({use.turned for use in uses}) > 1
        problem = ""
        if root in others:
            problem = f"{others[root]} needs it as float, beside the quantised weight of {nodes}"
        elif both and per_block:
            problem = (
                f"{nodes} use it one as it is and one transposed, and {method!r} has a scale for each column or block, "
                "which transposing doesn't keep"
            )
        if problem and not untie:
            raise ValueError(
                f"path: tensor {root!r} is shared: {problem}; method 'dynamic' or 'static' keeps a transposed weight "
                "shared, 'float16' every one, and untie=True (--untie) stores it once for each use"
            )
        if problem:
            done.ties.append(f"{root}: no longer shared, as asked for: {problem}")
        elif len(uses) > 1:
            how = "stored once, transposed for one of them" if both else "stored once"
            done.ties.append(f"{root}: {nodes}; {how}")


def _rewrite(done: Prepared, weights: Weights, others: dict[str, str], method: str) -> None:
    graph = done.model.graph
    names = _names(done.model)
    both = {root for root in weights.initializers if len({u.turned for u in done.uses if u.root == root}) > 1}
    apart = {root: _fresh(f"{root}.apart", names) for root in others}
    for root, name in apart.items():  # or static quantises it for its other readers too
        graph.initializer.append(copied(weights.initializers[root]))
        graph.initializer[-1].name = name
    for use in done.uses:
        if use.turned:
            use.weight = _turn(done, weights, use.root, names, use.root in both, use.root in apart, method)
        else:
            use.weight = apart.get(use.root, use.root)
    biased = _pairs(done) if method.startswith("static") else {}
    by_name = {use.node.name: use for use in done.uses}
    absorbed = {add.name for add in biased.values()}
    nodes: list[Any] = []
    for node in graph.node:
        if node.name in by_name:
            nodes += _write(node, by_name[node.name].weight, biased.get(node.name), names, done.steps, method)
        elif node.name not in absorbed:
            nodes.append(node)
    replace_nodes(graph, nodes)
    drop_unused(graph, {use.root for use in done.uses} | set(apart.values()))


def _names(model: Any) -> set[str]:
    names = {tensor.name for tensor in model.graph.initializer}
    names |= {name for node in all_nodes(model.graph) for name in (*node.input, *node.output)}
    return names | {value.name for value in (*model.graph.input, *model.graph.output)}


def _fresh(name: str, names: set[str]) -> str:
    while any(f"{name}{end}" in names for end in ("", "_quantized", "_scale", "_zero_point")):
        name += "_"
    names.add(name)
    return name


def _turn(done: Prepared, weights: Weights, root: str, names: set[str], both: bool, apart: bool, method: str) -> str:
    """The name of the transposed weight, which is stored if it isn't yet."""
    name = next((use.weight for use in done.uses if use.root == root and use.turned and use.weight), "")
    if name:
        return name
    helper: Any = require("onnx.numpy_helper")
    name = _fresh(f"{root}.transposed", names)
    array = np.ascontiguousarray(helper.to_array(weights.initializers[root]).T)
    done.model.graph.initializer.append(helper.from_array(array, name))
    if both and method in ("dynamic", "static") and not apart:
        done.copies[name] = root
    elif not both and not apart:
        done.steps.append(f"weight {root} is stored transposed, as {name}")
    return name


def _pairs(done: Prepared) -> dict[str, Any]:
    """For each MatMul of a matrix whose only reader adds a stored vector: that Add."""
    graph = done.model.graph
    held = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    readers: dict[str, list[Any]] = {}
    for node in all_nodes(graph):
        for name in node.input:
            readers.setdefault(name, []).append(node)
    ranks = {
        v.name: len(v.type.tensor_type.shape.dim)
        for v in (*graph.input, *graph.value_info)
        if v.type.tensor_type.HasField("shape")
    }
    top = {node.name for node in graph.node}
    found = {}
    for use in done.uses:
        node, width = use.node, held[use.weight][1]
        product = node.output[0]
        after = readers.get(product, [])
        if node.op_type != "MatMul" or ranks.get(node.input[0]) != 2 or product in outputs or len(after) != 1:
            continue
        add = after[0]
        if add.op_type == "Add" and add.domain in STANDARD and add.name in top:
            other = [name for name in add.input if name != product]
            if len(other) == 1 and held.get(other[0]) == (width,):
                found[node.name] = add
    return found


def _write(node: Any, weight: str, add: Any, names: set[str], steps: list[str], method: str) -> list[Any]:
    helper: Any = require("onnx.helper")
    static = method.startswith("static")
    if node.op_type == "Gemm" and not static:
        bias = node.input[2] if len(node.input) > 2 else ""
        steps.append(f"Gemm {node.name} → MatMul{' + Add' if bias else ''}")
        product = _fresh(f"{node.output[0]}_matmul", names) if bias else node.output[0]
        nodes = [helper.make_node("MatMul", [node.input[0], weight], [product], name=node.name)]
        if bias:
            name = _fresh(f"{node.name}_add", names)
            nodes.append(helper.make_node("Add", [product, bias], [node.output[0]], name=name))
        return nodes
    if add is not None:
        steps.append(f"MatMul {node.name} + Add {add.name} → Gemm")
        bias = next(name for name in add.input if name != node.output[0])
        return [helper.make_node("Gemm", [node.input[0], weight, bias], [add.output[0]], name=node.name)]
    if static and node.op_type == "Gemm":
        rest = [name for name in node.input[2:] if name]
        return [helper.make_node("Gemm", [node.input[0], weight, *rest], [node.output[0]], name=node.name)]
    return [helper.make_node("MatMul", [node.input[0], weight], [node.output[0]], name=node.name)]
