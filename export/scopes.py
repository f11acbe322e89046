"""The graphs of a model: the main one, those inside of nodes such as If and Loop, and its functions' bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def scopes(model: Any) -> Iterator[tuple[str, Any]]:
    """Every graph of an ir.Model with the name of its place: main graph, subgraphs, functions."""
    yield from _with_subgraphs("main graph", model.graph)
    for function in model.functions.values():
        yield from _with_subgraphs(scope_of(function), function)


def scope_of(function: Any) -> str:
    """What `Site.scope` begins with for a site in a model-local function."""
    return f"function {function.domain}.{function.name}"


def _with_subgraphs(scope: str, graph: Any) -> Iterator[tuple[str, Any]]:
    waiting = [(scope, graph)]
    while waiting:
        scope, graph = waiting.pop()
        yield scope, graph
        for node in graph:
            for name, attribute in node.attributes.items():
                if attribute.is_ref():
                    continue
                inner = [attribute.value] if attribute.type.name == "GRAPH" else []
                inner = list(attribute.value) if attribute.type.name == "GRAPHS" else inner
                label = f"{node.op_type} {node.name or node.outputs[0].name}, {name}" if node.outputs else node.op_type
                waiting += [(f"{scope} / {label}", g) for g in inner]
