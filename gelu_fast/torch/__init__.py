"""PyTorch: a drop-in GELU that is differentiable, compilable and exportable. Needs the extra ``torch``.

`gelu`, `bias_gelu` and `geglu` take tensors; `GELU`, `BiasGELU`, `GEGLU` and `FeedForwardBlock` are modules;
`swap_gelu` puts `GELU` into a model that others made; `onnx_translations` is for ``torch.onnx.export``.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise ImportError(
        "gelu_fast.torch needs PyTorch, which is not installed: pip install 'gelu-fast[torch]'"
    ) from _error

from .functions import gelu
from .fused import bias_gelu, geglu
from .modules import GEGLU, GELU, BiasGELU, FeedForwardBlock
from .onnx import onnx_translations
from .swap import Replaced, Swap, swap_gelu

__all__ = [
    "GEGLU",
    "GELU",
    "BiasGELU",
    "FeedForwardBlock",
    "Replaced",
    "Swap",
    "bias_gelu",
    "geglu",
    "gelu",
    "onnx_translations",
    "swap_gelu",
]
