"""Finds every GELU of a model, whoever wrote it, by what it computes.

A GELU may begin wherever an Erf, Erfc, Tanh, Sigmoid or Exp stands. From there every tensor before it is tried as the
input and every tensor behind it as the output, as long as nothing but element-wise operators and scalars lies between;
what lies between is evaluated in float64 and compared with the three formulas. So the order of operands, the place of
the ½, casts, folded constants and extra nodes do not matter, and a chain that only looks like a GELU isn't one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gelu_fast.export import elementwise, forms
from gelu_fast.export.elementwise import F64
from gelu_fast.export.reference import gelu64
from gelu_fast.export.scopes import scopes
from gelu_fast.forms import FORMS, QUICK_SLOPE

# Where the formulas differ most, and the tail that a cancelling chain loses.
_GRID = np.concatenate([np.linspace(-6, 6, 97), [-30.0, 25.0]])
_WANTED = {form: gelu64(_GRID, form) for form in FORMS}
# Constants rounded to float16 put a GELU off by up to 3e-5, to bfloat16 by 4e-4, which is as far as exact and tanh are
# apart: then the operator it began with tells which of the two it may be. x·σ(1.69x), 1.6e-3 off, is none.
_CLOSE, _ROUNDED, _CLEARLY = 2e-6, 1e-3, 0.5
_SIGMOIDS = ("tanh", "quick")
_MEANT = {"Erf": ("none",), "Erfc": ("none",), "Tanh": _SIGMOIDS, "Sigmoid": _SIGMOIDS, "Exp": _SIGMOIDS}
# Where a clamp shows.
_FAR_OUT = np.array([-np.inf, -1e30, -1e4, -200.0, 200.0, 1e4, 1e30, np.inf])
_FAR_OUT_WANTED = np.where(_FAR_OUT < 0, 0.0, _FAR_OUT)
_WIDTHS = {10: 1, 16: 1, 1: 2, 11: 3}  # of TensorProto's float16, bfloat16, float, double
_FAR = 12  # nodes back and forth from the core
_LIMIT = 160  # nodes of one GELU; the primitive form has about a hundred
_CONTRIB = {"Gelu": "none", "BiasGelu": "none", "FastGelu": "tanh", "QuickGelu": "quick"}


@dataclass(eq=False)
class Site:
    """A GELU, by onnx_ir's objects.

    Attributes
    ----------
    formula : {"none", "tanh", "quick"}
    spelling : str
        The operator with its domain, ``"function domain.Name"``, or the chain of operators.
    nodes : list of ir.Node
        In order, without those that make constants.
    entry, output : ir.Value
    bias : ir.Value or None
        What BiasGelu and FastGelu add first.
    scope : str
    error : float
        How far the values are from the formula's, relative to max(1, |x|).
    numbers : tuple of float
        The scalars of a chain, in the order of its nodes.
    remarks : list of str
    """

    formula: str
    spelling: str
    nodes: list[Any]
    entry: Any
    output: Any
    bias: Any
    scope: str
    error: float = 0.0
    numbers: tuple[float, ...] = ()
    remarks: list[str] = field(default_factory=list)


def find(model: Any) -> list[Site]:
    """All sites of an ir.Model, in the order of its graphs."""
    return _Finder(model).all()


class _Finder:
    def __init__(self, model: Any) -> None:
        self._model, self._reader = model, elementwise.Reader()
        self._functions: dict[Any, str] = {}
        for key, function in model.functions.items():
            formula = self._function_formula(function)
            if formula is not None:
                self._functions[key] = formula

    def all(self) -> list[Site]:
        found: list[Site] = []
        for scope, graph in scopes(self._model):
            # Of a function that is a GELU, its calls are the sites.
            if not any(graph is self._model.functions[key] for key in self._functions):
                found += self._find_in(graph, scope)
        return found

    def _find_in(self, graph: Any, scope: str) -> list[Site]:
        found: list[Site] = []
        taken: set[int] = set()
        for node in graph:
            if id(node) in taken:
                continue
            site = self._operator(node, scope)
            sites = [] if site is None else [site]
            if not sites and node.op_type in elementwise.CORES and elementwise.known(node):
                sites = self._chains(node, scope)
            sites = [site for site in sites if not any(id(n) in taken for n in site.nodes)]
            found += sites
            taken |= {id(n) for site in sites for n in site.nodes}
        return found

    def _operator(self, node: Any, scope: str) -> Site | None:
        inputs = [v for v in node.inputs if v is not None]
        if not inputs or len(node.outputs) != 1:
            return None
        formula, spelling, bias, error = None, node.op_type, None, 0.0
        if node.domain in ("", "ai.onnx") and node.op_type == "Gelu":
            formula = _attribute_of_gelu(node)
        elif node.domain == forms.CONTRIB and node.op_type in _CONTRIB:
            formula, spelling = _CONTRIB[node.op_type], f"{node.domain}.{node.op_type}"
            if node.op_type == "QuickGelu":
                alpha = node.attributes.get("alpha")
                slope = QUICK_SLOPE if alpha is None or alpha.is_ref() else float(alpha.value)
                formula, error = _nearest(_GRID / (1 + np.exp(-slope * _GRID)), "Sigmoid")
            bias = inputs[1] if len(inputs) > 1 else None
        elif node.op_identifier() in self._functions and len(inputs) == 1:
            formula, spelling = self._functions[node.op_identifier()], f"function {node.domain}.{node.op_type}"
        if formula not in FORMS:
            return None
        site = Site(formula, spelling, [node], inputs[0], node.outputs[0], bias, scope, error)
        site.remarks = _remarks(site)
        return site

    def _chains(self, core: Any, scope: str) -> list[Site]:
        """The smallest part that is a GELU: a clamp or an addition at its ends, however harmless, isn't part of it.

        But where such a part computes between two Casts in a wider type than the tensors have, the Casts are; and the
        primitive form's own clamp is. Two that share the core, but not what makes their results, are two.
        """
        found: list[Site] = []
        entries = self._before(core)
        for output in self._behind(core):
            for entry in entries:
                nodes = self._reader.region(output, entry, _LIMIT)
                if not nodes or core not in nodes or not _keeps_the_rank(nodes, entry):
                    continue
                formula, error = _nearest(self._reader.evaluate(nodes, entry, output, _GRID), core.op_type)
                if formula is not None:
                    spelling = " ".join(n.op_type for n in nodes)
                    found.append(Site(formula, spelling, nodes, entry, output, None, scope, error))
        if not found:
            return []
        found.sort(key=lambda site: len(site.nodes))

        def rank(site: Site) -> tuple[int, int, int]:
            """The narrowest type, then the largest part; what does nothing, as Keras's Casts, isn't counted."""
            return -_width(site.entry), sum(not elementwise.idle(node) for node in site.nodes), -len(site.nodes)

        larger = (site for site in found[1:] if self._belongs(site, found[0], core.op_type == "Exp"))
        best = max(found[0], *larger, found[0], key=rank)
        sites = [best]
        for site in found:
            if all(s.nodes[-1] not in site.nodes and site.nodes[-1] not in s.nodes for s in sites):
                sites.append(site)
        sites.sort(key=lambda site: core.graph.index(site.nodes[-1]))
        for site in sites:
            scalars = (self._reader.scalar(v) for n in site.nodes for v in elementwise.operands(n))
            site.numbers = tuple(number for number in scalars if number is not None)
            site.remarks = _remarks(site)
        return sites

    def _belongs(self, site: Site, inner: Site, primitive: bool) -> bool:
        """Whether a larger part is the smaller one in a wider type, as 16 bits in float32, or with its own clamp.

        Where it computes something else far out, it has a clamp in it that somebody wants.
        """
        widths = [_width(v) for v in (site.entry, site.output, inner.entry, inner.output)]
        if widths[0] != widths[1] or widths[2] != widths[3]:
            return False
        if not (primitive or 1 == widths[0] < widths[2]):
            return False
        large = self._reader.evaluate(site.nodes, site.entry, site.output, _FAR_OUT)
        small = self._reader.evaluate(inner.nodes, inner.entry, inner.output, _FAR_OUT)
        with np.errstate(invalid="ignore"):  # the primitive form leaves 1e-48 of the tail
            right = (large == _FAR_OUT_WANTED) | (np.abs(large - _FAR_OUT_WANTED) < 1e-40)
        same = right | (large == small) | (np.isnan(large) & np.isnan(small))
        return bool(same.all())

    def _before(self, core: Any) -> list[Any]:
        """Tensors that `core` may have been computed from, nearest first."""
        found: list[Any] = []
        front = [v for v in core.inputs if self._reader.scalar(v) is None]
        for _ in range(_FAR):
            found += front
            producers = [n for v in front if (n := v.producer()) is not None and n.graph is core.graph]
            front = []
            for value in (v for n in producers if elementwise.known(n) for v in n.inputs):
                if self._reader.scalar(value) is None and not any(value is f for f in (*found, *front)):
                    front.append(value)
            if len(found) > _LIMIT:
                break
        return found

    def _behind(self, core: Any) -> list[Any]:
        """Tensors that are computed from `core`'s result, nearest first."""
        found: list[Any] = []
        front = list(core.outputs)
        for _ in range(_FAR):
            users = [u.node for v in front for u in v.uses() if u.node.graph is core.graph]
            front = []
            for node in users:
                if elementwise.known(node) and not any(node.outputs[0] is f for f in (*found, *front)):
                    front.append(node.outputs[0])
            found += front
            if len(found) > _LIMIT:
                break
        return found

    def _function_formula(self, function: Any) -> str | None:
        """The formula of a model-local function that is a GELU and nothing else."""
        if len(function.inputs) != 1 or len(function.outputs) != 1:
            return None
        entry, output = function.inputs[0], function.outputs[0]
        node = output.producer()
        if node is not None and node.op_type == "Gelu" and node.domain == "" and node.inputs[0] is entry:
            return _attribute_of_gelu(node)
        nodes = self._reader.region(output, entry, _LIMIT)
        core = next((n.op_type for n in nodes or () if n.op_type in _MEANT), None)
        return _nearest(self._reader.evaluate(nodes, entry, output, _GRID), core)[0] if nodes and core else None


def _width(value: Any) -> int:
    return 0 if value.dtype is None else _WIDTHS.get(int(value.dtype), 0)


def _keeps_the_rank(nodes: list[Any], entry: Any) -> bool:
    """Whether no constant of one element has more axes than the tensor: the result would have them too."""
    tensors = (v.const_value for n in nodes for v in n.inputs if v is not None and v.const_value is not None)
    most = max((len(t.shape) for t in tensors), default=0)
    return most <= 1 or (entry.shape is not None and most <= len(entry.shape))


def _attribute_of_gelu(node: Any) -> str | None:
    attribute = node.attributes.get("approximate")
    if attribute is None:
        return "none"
    return None if attribute.is_ref() else str(attribute.value)


def _nearest(values: F64, core: str) -> tuple[str | None, float]:
    """The formula that the values are, and how far from it."""
    scale = np.maximum(1, np.abs(_GRID))
    with np.errstate(invalid="ignore"):
        off = {form: np.nan_to_num(np.abs(values - want) / scale, nan=np.inf) for form, want in _WANTED.items()}
    errors = {form: float(error.max()) for form, error in off.items()}
    best = min(errors, key=lambda form: errors[form])
    if errors[best] > _CLOSE:
        best = min(_MEANT[core], key=lambda form: errors[form])
        second = min((errors[form] for form in _MEANT[core] if form != best), default=np.inf)
        if errors[best] > min(_ROUNDED, _CLEARLY * second):
            return None, errors[best]
    return best, errors[best]


def _remarks(site: Site) -> list[str]:
    out = []
    if site.error > _CLOSE:
        out.append(f"its constants are rounded: it is {site.error:.1e} off its formula")
    out += [f"{value.name!r}, inside of it, is used elsewhere" for value in used_elsewhere(site)]
    inside = {id(n) for n in site.nodes}
    for node in site.nodes:
        for stored in _stored(node, inside):
            if stored.is_graph_input():
                out.append(f"the constant {stored.name!r} is an input with a default, which a caller may override")
    return list(dict.fromkeys(out))


def used_elsewhere(site: Site) -> list[Any]:
    """The tensors inside of a site that other nodes use, or that are outputs."""
    inside = {id(n) for n in site.nodes}
    values = [node.outputs[0] for node in site.nodes if node.outputs[0] is not site.output]
    return [v for v in values if v.is_graph_output() or any(id(use.node) not in inside for use in v.uses())]


def _stored(node: Any, inside: set[int]) -> Iterator[Any]:
    """The initialisers that a node's scalars come from."""
    waiting = list(elementwise.operands(node))
    while waiting:
        value = waiting.pop()
        maker = value.producer()
        if maker is None and value.is_initializer():
            yield value
        elif maker is not None and id(maker) not in inside and elementwise.known(maker):
            inside = inside | {id(maker)}
            waiting += elementwise.operands(maker)
