"""A block read out of a PyTorch module, and proof that the module computes that block and nothing more.

PyTorch is never imported here: whoever passes a module has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gelu_fast.export import reference
from gelu_fast.export.sources import Block, make_block

_PROBE_ROWS = 5


def block_from_module(module: Any) -> Block:
    """The weights and the formula of a module made of two ``nn.Linear`` and one ``nn.GELU``.

    Parameters
    ----------
    module : torch.nn.Module
        With children ``fc1`` (Linear), ``act`` (GELU) and ``fc2`` (Linear), or any other names in that order,
        such as ``nn.Sequential(Linear, GELU, Linear)``. Dropout and Identity children are allowed: inference
        ignores them. The module is run once in eval mode on a few rows, because its ``forward`` may do more
        than its children say (a residual, a scale); its training flags are put back.

    Returns
    -------
    Block
        ``approximate`` is that of the module's GELU.

    Raises
    ------
    ValueError
        If the children are others, or ``forward`` computes something else.
    """
    nn = sys.modules["torch"].nn
    children = [
        (name, child) for name, child in module.named_children() if not isinstance(child, (nn.Dropout, nn.Identity))
    ]
    linears = [(name, child) for name, child in children if isinstance(child, nn.Linear)]
    gelus = [child for _, child in children if isinstance(child, nn.GELU)]
    if len(linears) != 2 or len(gelus) != 1 or len(children) != 3:
        got = ", ".join(f"{name}={type(child).__name__}" for name, child in children) or "no children"
        raise ValueError(
            f"source: expected a module of two nn.Linear and one nn.GELU, such as fc1, act and fc2; "
            f"{type(module).__name__} has {got}"
        )
    names = dict(linears)
    if {"fc1", "fc2"} <= names.keys():  # registered in any order
        linears = [("fc1", names["fc1"]), ("fc2", names["fc2"])]
    (first, fc1), (second, fc2) = linears
    labels = {
        "w1": f"{first}.weight", "b1": f"{first}.bias", "w2": f"{second}.weight", "b2": f"{second}.bias",
    }  # fmt: skip
    arrays = {"w1": fc1.weight, "b1": fc1.bias, "w2": fc2.weight, "b2": fc2.bias}
    block = make_block(arrays, labels, transposed=True, approximate=str(gelus[0].approximate))
    _prove(module, block, fc1.weight)
    return block


def _prove(module: Any, block: Block, like: Any) -> None:
    torch: Any = sys.modules["torch"]
    x = np.random.default_rng(0).standard_normal((_PROBE_ROWS, block.in_features)).astype(np.float32)
    form = str(block.approximate)
    want = reference.expected(block, x, form)
    name = type(module).__name__
    modes = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        with torch.no_grad():
            output = module(torch.from_numpy(x).to(device=like.device, dtype=like.dtype))
        y = output.detach().to(device="cpu", dtype=torch.float64).numpy()
    except Exception as error:  # whatever a user's forward raises
        raise ValueError(
            f"source: {name}.forward failed on a ({_PROBE_ROWS}, {block.in_features}) input: {error}"
        ) from error
    finally:
        for part, mode in modes:
            part.training = mode
    if y.shape != want.y[form].shape:
        raise ValueError(f"source: {name}.forward gave shape {y.shape}, the block gives {want.y[form].shape}")
    # Modules in 16-bit types round far more coarsely than the float32 the tolerance is meant for.
    coarse = max(1.0, float(torch.finfo(like.dtype).eps) * 2.0**23)
    off = np.abs(y - want.y[form])
    if not (off.max(axis=1) <= coarse * want.allowed).all():
        raise ValueError(
            f"source: {name}.forward doesn't compute fc2(gelu(fc1(x))) with approximate={form!r}: it differs "
            f"by up to {off.max():.3g}. A residual, a scale or another activation can't be exported"
        )
