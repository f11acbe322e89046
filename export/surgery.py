"""Puts the nodes of one spelling of GELU in the place of another's, in an ir.Model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gelu_fast.export import forms, opsets
from gelu_fast.export.inspection import dtype_of
from gelu_fast.export.lazy import require
from gelu_fast.export.sites import Site

_MARK = "gelu_fast."  # in the names of new nodes and tensors


@dataclass(frozen=True)
class Change:
    """One GELU, before and after.

    Attributes
    ----------
    scope, input, output : str
    formula, new_formula : str
        The same unless another was asked for.
    removed, added : tuple of str
        Nodes by their names, or their outputs where they have none, with the operator in front.
    kept : tuple of str
        Nodes of the old spelling that stay, since something else uses them.
    """

    scope: str
    input: str
    output: str
    formula: str
    new_formula: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    kept: tuple[str, ...]


def replace(model: Any, site: Site, form: str, formula: str, progress: Progress, hidden: bool) -> Change:
    """Replace a site of the model.

    Parameters
    ----------
    model : ir.Model
    site : Site
    form, formula : str
    progress : Progress
    hidden : bool
        Whether the standard Gelu is to be covered; see `opsets.cover`.
    """
    ir: Any = require("onnx_ir")
    # What went before may have been replaced itself.
    site.entry = progress.moved.get(id(site.entry), site.entry)
    site.bias = progress.moved.get(id(site.bias), site.bias)
    dtype = dtype_of(model, site)
    if dtype is None and form not in ("native", "contrib"):  # operators that take any
        raise ValueError(f"path_or_model: {site.entry.name!r} in {site.scope}, a GELU's input, has no type")
    dtype = dtype or "float32"
    compute = _computed_in(site, dtype)
    made = _snippet(site, form, formula, dtype, compute, progress)
    if hidden:
        opsets.cover(made)
    graph = site.nodes[0].graph
    last = max(site.nodes, key=graph.index) if len(site.nodes) > 1 else site.nodes[0]
    entry, result = made.inputs[0], made.outputs[0]
    made.outputs.clear()  # a value is the output of one graph, and this may become the model's
    added = list(made)
    labels = tuple(_label(n) for n in added if n.op_type != "Constant")
    made.remove(added)
    ir.convenience.replace_all_uses_with(entry, site.entry)
    if site.bias is not None:
        ir.convenience.replace_all_uses_with(made.inputs[1], site.bias)
    name = site.output.name
    result.type, result.shape = site.output.type, site.output.shape
    ir.convenience.replace_nodes_and_values(graph, last, [], added, [site.output], [result])
    site.output.name, result.name = f"{name}.replaced", name
    progress.moved[id(site.output)] = result
    progress.kept.append(site.output)  # or its id might be given to another
    removed, kept = _remove_dead(site)
    if form == "function":
        function = forms.make_function(formula, compute, opsets.opset_of(model))
        function.name = progress.function_name(formula, compute)
        made_function = ir.from_proto(function)
        model.functions.setdefault(made_function.identifier(), made_function)
        model.graph.opset_imports.setdefault(forms.LOCAL, 1)
    elif form == "contrib":
        model.graph.opset_imports.setdefault(forms.CONTRIB, 1)
    inner = getattr(graph, "opset_imports", {})
    for domain in {n.domain for n in added} - set(inner):  # a function imports for itself
        inner[domain] = 1
    return Change(site.scope, str(site.entry.name), str(name), site.formula, formula, removed, labels, kept)


def _computed_in(site: Site, dtype: str) -> str:
    """float32 for a GELU in 16 bits that was computed so between two Casts; otherwise its own type."""
    ir: Any = require("onnx_ir")
    targets = [n.attributes["to"].value for n in site.nodes if n.op_type == "Cast"]
    return "float32" if dtype in ("float16", "bfloat16") and ir.DataType.FLOAT in targets else dtype


def _snippet(site: Site, form: str, formula: str, dtype: str, compute: str, progress: Progress) -> Any:
    """An ir.Graph of the new nodes, from "x" (and a bias) to "y"; its names occur nowhere in the model."""
    ir: Any = require("onnx_ir")
    helper: Any = require("onnx.helper")
    prefix = progress.new(site)
    nodes = forms.Nodes(dtype, prefix)
    entry, names = f"{prefix}in", [f"{prefix}in"]
    if site.bias is not None:
        names.append(f"{prefix}bias")
        entry = nodes.add("Add", names[0], names[1], output=f"{prefix}sum")
    forms.emit(form, formula, nodes, entry, f"{prefix}out", None if form == "primitive" else compute)
    if form == "function":
        for node in nodes.nodes:
            if node.domain == forms.LOCAL:
                node.op_type = progress.function_name(formula, compute)
    element = forms.element_type(dtype)
    return ir.from_proto(helper.make_graph(
        nodes.nodes, "snippet", [helper.make_tensor_value_info(n, element, None) for n in names],
        [helper.make_tensor_value_info(f"{prefix}out", element, None)],
    ))  # fmt: skip


class Progress:
    """What one rewrite has done so far, and names that no name in the model has."""

    def __init__(self, model: Any) -> None:
        graphs = [model.graph, *model.functions.values()]
        names = (str(v.name) for g in graphs for n in g.all_nodes() for v in n.outputs)
        self._taken = {name.rpartition(_MARK)[0] for name in names if _MARK in name}
        self.moved: dict[int, Any] = {}  # id of an old output to the value in its place
        self.kept: list[Any] = []
        self._functions: dict[tuple[str, str], str] = {}
        self._names = {f.name for f in model.functions.values() if f.domain == forms.LOCAL}

    def function_name(self, formula: str, dtype: str) -> str:
        """A name that no function of the model has; its body's constants have a type, so there is one for each."""
        key = (formula, dtype)
        if key not in self._functions:
            name = start = forms.LOCAL_NAMES[formula] + ("" if dtype == "float32" else f"_{dtype}")
            number = 1
            while name in self._names:
                number += 1
                name = f"{start}_{number}"
            self._names.add(name)
            self._functions[key] = name
        return self._functions[key]

    def new(self, site: Site) -> str:
        """One after the site's output."""
        start, number = f"{site.output.name}/", 0
        while start in self._taken:
            number += 1
            start = f"{site.output.name}/{number}/"
        self._taken.add(start)
        return start + _MARK


def _remove_dead(site: Site) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove the old nodes that nothing uses any more, with the constants that they alone used."""
    removed, kept = [], []
    waiting = list(reversed(site.nodes))
    while waiting:
        node = waiting.pop(0)
        if node.graph is None:
            continue
        if any(v.is_graph_output() or v.uses() for v in node.outputs):
            if node in site.nodes:
                kept.append(_label(node))
            continue
        operands = [v for v in node.inputs if v is not None]
        if node.op_type != "Constant":
            removed.append(_label(node))
        graph = node.graph
        graph.remove(node, safe=True)
        for value in operands:
            producer = value.producer()
            if value in (site.entry, site.bias) or value.uses():
                continue
            if producer is not None and producer.graph is not None and producer not in waiting:
                waiting.append(producer)
            elif value.is_initializer() and not value.is_graph_input() and not value.is_graph_output():
                value.graph.initializers.pop(value.name)
    return tuple(reversed(removed)), tuple(reversed(kept))


def _label(node: Any) -> str:
    return f"{node.op_type} {node.name or node.outputs[0].name}"


def drop_unused_functions(model: Any) -> None:
    """Remove the model's functions that nothing calls."""
    graphs = [model.graph, *model.functions.values()]
    used = {n.op_identifier() for g in graphs for n in g.all_nodes()}
    for key in [k for k in model.functions if k not in used]:
        del model.functions[key]
