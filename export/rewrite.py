"""`rewrite`: every GELU of a model in the form asked for, up or down in opset, everything else as it was.

The graph is changed by onnx_ir; the opset by onnx.version_converter, which knows the other operators. (onnxscript's
pattern rewriter matches given shapes; sites.py finds a GELU by value, so there is nothing left to match.)
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

from gelu_fast.export import forms, opsets, writing
from gelu_fast.export.agreement import Agreement, compare_models
from gelu_fast.export.inspection import dtype_of, to_ir
from gelu_fast.export.lazy import require
from gelu_fast.export.loading import load
from gelu_fast.export.sites import Site, find, scope_of
from gelu_fast.forms import FORMS

if TYPE_CHECKING:
    import onnx


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


@dataclass(frozen=True)
class Rewritten:
    """What `rewrite_with_report` did.

    Attributes
    ----------
    model : onnx.ModelProto
    changes : tuple of Change
    opset, new_opset : int
    agreement : Agreement or None
        How the two models compare when run; None if that wasn't asked for.
    """

    model: onnx.ModelProto
    changes: tuple[Change, ...]
    opset: int
    new_opset: int
    agreement: Agreement | None


def rewrite(
    path_or_model: str | PathLike[str] | onnx.ModelProto,
    form: str,
    *,
    opset: int | None = None,
    approximate: str | None = None,
    verify: bool = True,
) -> onnx.ModelProto:
    """Write every GELU of a model in another form.

    Parameters
    ----------
    path_or_model : str, PathLike or onnx.ModelProto
        Left as it is. External data is not copied: the result refers to the same files.
    form : {"native", "fusable", "contrib", "function", "primitive"}
        See `gelu_fast.export.forms`.
    opset : int, optional
        Of the result. By default the model's own, raised where the form needs it.
    approximate : {"none", "tanh", "quick"}, optional
        Changes the formula of every GELU. By default each keeps its own.
    verify : bool
        Whether to run both models on random inputs, in onnxruntime at every optimisation level and by onnx's reference
        evaluator, and compare.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    ValueError
        If the model has no GELU, the form can't serve one of them, the opset can't be had, or the two models give
        different results.
    FileNotFoundError, TypeError, ImportError
        As `gelu_fast.export.inspect`.
    """
    return rewrite_with_report(path_or_model, form, opset=opset, approximate=approximate, verify=verify).model


def rewrite_with_report(
    path_or_model: str | PathLike[str] | onnx.ModelProto,
    form: str,
    *,
    opset: int | None = None,
    approximate: str | None = None,
    verify: bool = True,
) -> Rewritten:
    """`rewrite`, and what it changed."""
    if form not in forms.FORMS:
        raise ValueError(f"form: expected one of {', '.join(map(repr, forms.FORMS))}, got {form!r}")
    if approximate is not None and approximate not in FORMS:
        raise ValueError(f"approximate: expected one of {', '.join(map(repr, FORMS))}, got {approximate!r}")
    loaded = load(path_or_model)
    model = to_ir(loaded)
    sites = find(model)
    if not sites:
        raise ValueError(f"path_or_model: {loaded.name} has no GELU in any spelling")
    old = opsets.opset_of(model)
    for function in model.functions.values():
        inner = function.opset_imports.get("", old)
        if inner < forms.FIRST_OPSET[form] and any(s.scope.startswith(scope_of(function)) for s in sites):
            raise ValueError(f"form: {form!r} needs opset {forms.FIRST_OPSET[form]}, and the function "
                             f"{function.domain}.{function.name}, which has a GELU, imports {inner}")  # fmt: skip
    goal = opset if opset is not None else max(old, forms.FIRST_OPSET[form])
    opsets.check(goal, form)
    for site in sites:
        if form == "native" and (approximate or site.formula) == "quick":
            raise ValueError(
                f"form: 'native' has no quick formula, which {site.output.name!r} in {site.scope} has; 'fusable', "
                "'contrib', 'function' and 'primitive' do"
            )
    # The converter knows neither Erfc nor, before opset 20, Gelu; an operator of another domain it lets pass.
    hidden = form == "native" and goal != old
    prefixes = _Prefixes(model)
    changes = tuple(_replace(model, site, form, approximate or site.formula, prefixes, hidden) for site in sites)
    _drop_unused_functions(model)
    proto: onnx.ModelProto = opsets.to_proto(model) if goal == old else opsets.converted(model, goal, loaded)
    if hidden:
        opsets.uncover(proto.graph)
    if form == "function" and proto.ir_version < 8:
        proto.ir_version = 8
    opsets.tidy(proto, loaded.model)
    agreement = None
    if verify:
        agreement = compare_models(loaded, proto, changed=approximate is not None)
        if not agreement.passed:
            raise ValueError(f"path_or_model: not rewritten, since the results differ: {agreement.reason}")
    return Rewritten(proto, changes, old, goal, agreement)


def rewrite_file(
    path: str | PathLike[str],
    output: str | PathLike[str],
    form: str,
    *,
    opset: int | None = None,
    approximate: str | None = None,
    verify: bool = True,
    overwrite: bool = False,
) -> Rewritten:
    """`rewrite` from file to file. External data goes along: copied if `output` stands in another folder.

    Raises
    ------
    FileExistsError, FileNotFoundError, IsADirectoryError, PermissionError
        If `output` exists and `overwrite` is False, has no directory, is one, or can't be written.
    """
    goal = writing.check_path(output, overwrite, "output")
    loaded = load(path)
    done = rewrite_with_report(path, form, opset=opset, approximate=approximate, verify=verify)
    with writing.staged(goal, overwrite) as stage:
        stage.write_as_it_is(done.model, loaded.files[1:])
        stage.publish()
    return done


def _replace(model: Any, site: Site, form: str, formula: str, prefixes: _Prefixes, hidden: bool) -> Change:
    ir: Any = require("onnx_ir")
    dtype = dtype_of(model, site)
    if dtype is None and form not in ("native", "contrib"):  # operators that take any
        raise ValueError(f"path_or_model: {site.entry.name!r} in {site.scope}, a GELU's input, has no type")
    made = _snippet(site, form, formula, dtype or "float32", prefixes)
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
    removed, kept = _remove_dead(site)
    if form == "function" and dtype is not None:
        function = forms.make_function(formula, dtype, opsets.opset_of(model))
        function.name = _function_name(formula, dtype)
        made_function = ir.from_proto(function)
        model.functions.setdefault(made_function.identifier(), made_function)
        model.graph.opset_imports.setdefault(forms.LOCAL, 1)
    elif form == "contrib":
        model.graph.opset_imports.setdefault(forms.CONTRIB, 1)
    inner = getattr(graph, "opset_imports", {})
    for domain in {n.domain for n in added} - set(inner):  # a function imports for itself
        inner[domain] = 1
    return Change(site.scope, str(site.entry.name), str(name), site.formula, formula, removed, labels, kept)


def _snippet(site: Site, form: str, formula: str, dtype: str, prefixes: _Prefixes) -> Any:
    """An ir.Graph of the new nodes, from "x" (and a bias) to "y"; its names occur nowhere in the model."""
    ir: Any = require("onnx_ir")
    helper: Any = require("onnx.helper")
    prefix = prefixes.new(site)
    nodes = forms.Nodes(dtype, prefix)
    entry, names = f"{prefix}in", [f"{prefix}in"]
    if site.bias is not None:
        names.append(f"{prefix}bias")
        entry = nodes.add("Add", names[0], names[1], output=f"{prefix}sum")
    forms.emit(form, formula, nodes, entry, f"{prefix}out")
    if form == "function":
        for node in nodes.nodes:
            if node.domain == forms.LOCAL:
                node.op_type = _function_name(formula, dtype)
    element = forms.element_type(dtype)
    return ir.from_proto(helper.make_graph(
        nodes.nodes, "snippet", [helper.make_tensor_value_info(n, element, None) for n in names],
        [helper.make_tensor_value_info(f"{prefix}out", element, None)],
    ))  # fmt: skip


class _Prefixes:
    """Beginnings of names that no name in a model has."""

    def __init__(self, model: Any) -> None:
        graphs = [model.graph, *model.functions.values()]
        names = (str(v.name) for g in graphs for n in g.all_nodes() for v in n.outputs)
        self._taken = {name.rpartition(_MARK)[0] for name in names if _MARK in name}

    def new(self, site: Site) -> str:
        """One after the site's output."""
        start, number = f"{site.output.name}/", 0
        while start in self._taken:
            number += 1
            start = f"{site.output.name}/{number}/"
        self._taken.add(start)
        return start + _MARK


def _function_name(formula: str, dtype: str) -> str:
    """Its body's constants have a type, so there is one for each."""
    return forms.LOCAL_NAMES[formula] + ("" if dtype == "float32" else f"_{dtype}")


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


def _drop_unused_functions(model: Any) -> None:
    graphs = [model.graph, *model.functions.values()]
    used = {n.op_identifier() for g in graphs for n in g.all_nodes()}
    for key in [k for k in model.functions if k not in used]:
        del model.functions[key]
