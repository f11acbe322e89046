"""Blocks read out of a Keras 3 model, on any backend: its weights and configuration, never its own exporter."""

from __future__ import annotations

from typing import Any

from gelu_fast.export.blocks import Block, make_block
from gelu_fast.keras_parts import check_model, find_parts


def is_keras(source: Any, keras: Any) -> bool:
    """Whether it is a Keras layer or model, or a sequence of plain layers."""
    if isinstance(source, tuple | list):
        layer, model = keras.layers.Layer, keras.Model
        return bool(source) and all(isinstance(item, layer) and not isinstance(item, model) for item in source)
    return isinstance(source, keras.layers.Layer)


def blocks_from_keras(model: Any, keras: Any, prefix: str, allow_nonfinite: bool) -> list[Block]:
    """The weights and the formula of every block in a model or a sequence of layers.

    Parameters
    ----------
    model : keras.Model or sequence of keras.Layer
        See `gelu_fast.export.sources.read_source`.
    keras : module
    prefix : str
        Begins the name of every tensor in error messages.
    allow_nonfinite : bool
        Whether weights may be nan or infinite.

    Raises
    ------
    ValueError
        If the layers are others, have no weights yet, or the model's graph is another.
    """
    found = find_parts(model, keras, "source")
    blocks = []
    for parts in found:
        labels = {name: f"{prefix}{label}" for name, label in parts.labels.items()}
        blocks.append(make_block(
            parts.weights("source"), labels, transposed=False, approximate=parts.formula("source"),
            allow_nonfinite=allow_nonfinite,
        ))  # fmt: skip
    check_model(model, found, keras, "source")
    return blocks
