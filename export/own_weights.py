"""The blocks of a model that `export_ffn` wrote, read from its initialisers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gelu_fast.export import forms, graph
from gelu_fast.export.blocks import NAMES, Array, Stack, make_block
from gelu_fast.export.diagnosis import read
from gelu_fast.export.loading import Loaded

if TYPE_CHECKING:
    import onnx


def stack_of(loaded: Loaded) -> Stack | None:
    """The blocks, and the formula that the model states; None if the model isn't one of ours.

    Parameters
    ----------
    loaded : Loaded
        External tensors are read from its folder.
    """  # diagnosis.uses finds the same tensors, but for a given stack, whose shapes it holds the model to
    model: onnx.ModelProto = loaded.model
    pairs = graph.activations(model)
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    made: dict[str, Any] = {output: node for node in model.graph.node for output in node.output}
    stated = {entry.key: entry.value for entry in model.metadata_props}

    def affine(output: str) -> tuple[Array, Array | None] | None:
        node, bias = made.get(output), None
        if node is not None and node.op_type == "Add" and node.input[1] in stored:
            bias, node = read(stored[node.input[1]], loaded), made.get(node.input[0])
        if node is None or node.op_type != "MatMul":
            return None
        name, turned = str(node.input[1]), False
        if name in made and made[name].op_type == "Transpose":
            name, turned = made[name].input[0], True
        if name not in stored:
            return None
        weight = read(stored[name], loaded)
        return np.ascontiguousarray(weight.T) if turned else weight, bias

    blocks = []
    for index, (hidden, activated) in enumerate(pairs):
        after = graph.OUTPUT if index == len(pairs) - 1 else f"{hidden.removesuffix('hidden')}out"
        first, second = affine(hidden), affine(after)
        if first is None or second is None:
            return None
        (w1, b1), (w2, b2) = first, second
        user = made.get(activated)
        if user is not None and user.domain == forms.CONTRIB and len(user.input) > 1:  # BiasGelu
            b1 = read(stored[user.input[1]], loaded)
        arrays, labels = {"w1": w1, "b1": b1, "w2": w2, "b2": b2}, {name: f"the model's {name}" for name in NAMES}
        formula = stated.get("gelu_fast.formula")
        blocks.append(make_block(arrays, labels, transposed=False, approximate=formula, allow_nonfinite=True))
    return Stack(tuple(blocks)) if blocks else None
