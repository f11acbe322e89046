"""Where weights come from: arrays, files, FeedForward objects, PyTorch modules, Keras models, and sequences of these.

All end in one checked record, `Stack`, so that nothing downstream checks weights again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias

from gelu_fast.export.blocks import NAMES, Array, Block, Stack, make_block, random_block
from gelu_fast.export.weight_files import TORCH_NAMES, blocks_from_mapping, load_weights
from gelu_fast.ffn import FeedForward

# Whatever `read_source` takes.
Source: TypeAlias = Any

__all__ = ["NAMES", "TORCH_NAMES", "Array", "Block", "Source", "Stack", "load_weights", "random_block", "read_source"]


def read_source(source: Source, *, allow_nonfinite: bool = False) -> Stack:
    """Turn what a caller passed into a checked `Stack` of one or more blocks.

    Parameters
    ----------
    source : see below
        - ``(w1, b1, w2, b2)`` with ``w1`` (in, hidden), ``w2`` (hidden, out) and biases (hidden,) and (out,) or None;
          float16, bfloat16, float32 or float64; any byte order, strides and memory order.
        - A mapping of names to arrays, or the path of an .npz or .safetensors file with such: see
          `gelu_fast.export.weight_files` for the names, which also say whether a weight is (in, out) or (out, in).
        - A `gelu_fast.FeedForward` that isn't gated.
        - A torch.nn.Module of two nn.Linear, or two Hugging Face Conv1D, and a GELU between them, under any names:
          nn.Sequential, timm's Mlp, GPT-2's and CLIP's MLP, a wrapper around one of these, or an nn.Sequential or
          nn.ModuleList of several. Dropout and Identity count as nothing. Of a BERT layer, or of a pair
          ``(BertIntermediate, BertOutput)``, the block is dense, activation, dense: attention, LayerNorm and the
          residual stay outside of it. Modules are run in eval mode, to prove that they compute nothing more.
        - A Keras 3 model or list of layers: Dense with a GELU in it or after it, Dense, any number of times.
        - A sequence of any of these, which are one stack, each fed with what the one before gives.
    allow_nonfinite : bool, optional
        Whether weights may be nan or infinite. Modules that have such are proven as far as nan lets them be.

    Raises
    ------
    TypeError
        For a source of no known kind, or a tensor that isn't real floating point.
    ValueError
        For wrong shapes, non-finite values, a file that can't be read, a model that isn't made of such blocks (saying
        what was found), blocks that don't chain, or that state different formulas.
    FileNotFoundError
        For a path that isn't there.
    """
    if isinstance(source, Stack):
        return source
    return Stack(tuple(_blocks(source, "", allow_nonfinite)))


def _blocks(source: Source, prefix: str, allow_nonfinite: bool) -> Sequence[Block]:
    if isinstance(source, Stack):
        return source.blocks
    if isinstance(source, Block):
        return (source,)
    if isinstance(source, (str, PathLike)):
        return blocks_from_mapping(load_weights(source), prefix, allow_nonfinite)
    if isinstance(source, FeedForward):
        return (_from_feed_forward(source, prefix, allow_nonfinite),)
    # Never imported here: a module's or a model's owner has. On its torch backend a Keras layer is a torch module too.
    keras = sys.modules.get("keras")
    if hasattr(keras, "layers"):
        from gelu_fast.export.keras_source import blocks_from_keras, is_keras

        if is_keras(source, keras):
            return blocks_from_keras(source, keras, prefix, allow_nonfinite)
    torch = sys.modules.get("torch")
    if hasattr(torch, "nn"):
        from gelu_fast.export.torch_source import blocks_from_module, is_module

        if is_module(source, torch):
            return blocks_from_module(source, torch, prefix, allow_nonfinite)
    if isinstance(source, Mapping):
        return blocks_from_mapping(source, prefix, allow_nonfinite)
    if isinstance(source, Sequence):
        if _is_arrays(source):
            labels = {name: f"{prefix}{name}" for name in NAMES}
            arrays = dict(zip(NAMES, source, strict=True))
            return (make_block(arrays, labels, transposed=False, allow_nonfinite=allow_nonfinite),)
        if source and not any(_is_array(item) for item in source):
            return [
                block for k, item in enumerate(source) for block in _blocks(item, f"{prefix}[{k}].", allow_nonfinite)
            ]
    got = f"{type(source).__name__} of length {len(source)}" if hasattr(source, "__len__") else type(source).__name__
    raise TypeError(
        f"source{prefix.rstrip('.')}: expected (w1, b1, w2, b2), a mapping of tensor names to arrays, the path of an "
        f".npz or .safetensors file, a FeedForward, a torch.nn.Module, a Keras model, or a sequence of these; got {got}"
    )


def _from_feed_forward(ff: FeedForward, prefix: str, allow_nonfinite: bool) -> Block:
    if ff.gated:
        raise ValueError(
            f"source{prefix.rstrip('.')}: a gated FeedForward multiplies two halves of its hidden layer (GEGLU), which "
            "isn't Linear, GELU, Linear: expected gated=False"
        )
    arrays = {name: getattr(ff, name) for name in NAMES}
    labels = {name: f"{prefix}{name}" for name in NAMES}
    return make_block(
        arrays, labels, transposed=False, approximate=ff.approximate, allow_nonfinite=allow_nonfinite
    )


def _is_array(item: Any) -> bool:
    """Whether it can only be a tensor: None, an array, a number, or a list of numbers or of lists of numbers."""
    if item is None or hasattr(item, "__array__") or isinstance(item, (int, float, complex)):
        return True
    return isinstance(item, (list, tuple)) and bool(item) and all(_is_number_or_row(part) for part in item)


def _is_number_or_row(part: Any) -> bool:
    if isinstance(part, (list, tuple)):
        return all(isinstance(value, (int, float)) for value in part)
    return isinstance(part, (int, float))


def _is_arrays(source: Sequence[Any]) -> bool:
    """Whether four items are ``(w1, b1, w2, b2)`` rather than four blocks, none of which can be a tensor."""
    return len(source) == len(NAMES) and any(_is_array(item) for item in source)
