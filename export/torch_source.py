"""Blocks read out of a PyTorch module, and proof that its dense layers compute what their weights say.

The rest of the proof, that the module computes its layers and nothing more, is `gelu_fast.torch_parts.check_claims`,
and which formula an activation is, its values say. PyTorch is never imported here: whoever passes a module has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gelu_fast.export.blocks import Array, Block, make_block
from gelu_fast.torch_parts import check_claims, dense_weights, evaluating, find_parts, is_bert_pair

_ROWS = 5
_WRONG = "its forward doesn't compute x @ weight + bias with the weights it has"


def is_module(source: Any, torch: Any) -> bool:
    """Whether it is a module, or a pair of BertIntermediate and BertOutput."""
    return isinstance(source, torch.nn.Module) or is_bert_pair(source, torch)


def blocks_from_module(module: Any, torch: Any, prefix: str, allow_nonfinite: bool) -> list[Block]:
    """The weights and the formula of every block in a module, or in a pair of BertIntermediate and BertOutput.

    Parameters
    ----------
    module : torch.nn.Module or pair of them
        See `gelu_fast.export.sources.read_source`.
    torch : module
    prefix : str
        Begins the name of every tensor in error messages.
    allow_nonfinite : bool
        Whether weights may be nan or infinite; the dense layers that have such are taken at their word.

    Raises
    ------
    ValueError
        If the module is made of other things, or its ``forward`` computes something else.
    """
    found = find_parts(module, torch, "source")
    blocks = []
    for parts in found.parts:
        form = parts.formula("source")
        arrays: dict[str, Any] = {}
        labels: dict[str, str] = {}
        transposed = []
        for k, (layer, name) in enumerate(zip((parts.first, parts.second), parts.names, strict=True), 1):
            arrays[f"w{k}"], arrays[f"b{k}"], out_in = dense_weights(layer, torch)
            labels[f"w{k}"], labels[f"b{k}"] = f"{prefix}{name}.weight", f"{prefix}{name}.bias"
            transposed.append(out_in)
        if len(set(transposed)) > 1:
            raise ValueError(f"source: {', '.join(parts.names)}: expected two nn.Linear or two Conv1D, not one of each")
        block = make_block(
            arrays, labels, transposed=transposed[0], approximate=form, allow_nonfinite=allow_nonfinite
        )
        _prove(parts.first, block.w1, block.b1, labels["w1"], torch)
        _prove(parts.second, block.w2, block.b2, labels["w2"], torch)
        blocks.append(block)
    check_claims(found, torch, "source")
    return blocks


def _prove(layer: Any, weight: Array, bias: Array | None, label: str, torch: Any) -> None:
    """Run one dense layer, which may be a subclass, have hooks or be transposed, against float64.

    The tolerance is what float32 sums of any order may be off by, and a few roundings of the layer's own dtype.
    """
    like = layer.weight
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((_ROWS, weight.shape[0])).astype(np.float32))
    x = x.to(dtype=like.dtype)
    x64 = x.double().numpy()
    # By columns, so that a large layer isn't held in float64 whole.
    step = max(1, (1 << 20) // weight.shape[0])
    y = np.empty((_ROWS, weight.shape[1]))
    size = np.empty_like(y)
    for start in range(0, weight.shape[1], step):
        part = slice(start, start + step)
        w, b = weight[:, part].astype(np.float64), 0.0 if bias is None else bias[part].astype(np.float64)
        if not np.isfinite(w).all() or not np.isfinite(b).all():
            return
        y[:, part] = x64 @ w + b
        size[:, part] = np.abs(x64) @ np.abs(w) + np.abs(b)
    finfo = torch.finfo(like.dtype)
    try:
        with evaluating(layer), torch.no_grad():
            got = layer(x.to(device=like.device)).detach().cpu().double().numpy()
    except Exception as error:  # whatever a user's forward raises
        raise ValueError(f"source: {label}: its layer failed on an input of shape {tuple(x.shape)}: {error}") from error
    if got.shape != y.shape:
        raise ValueError(f"source: {label}: {_WRONG}: its output has shape {got.shape}, expected {y.shape}")
    allowed = (len(weight) * 2.0**-23 + 8 * float(finfo.eps)) * size
    usable = size < float(finfo.max) / 4
    with np.errstate(invalid="ignore"):
        off = np.abs(got - y)[usable]
    if not (off <= allowed[usable]).all():
        raise ValueError(f"source: {label}: {_WRONG}: it differs by up to {off.max():.3g}")
