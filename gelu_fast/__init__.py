"""GELU for the CPU, fast and with a stated error bound, and its way into ONNX models.

`gelu`, `gelu_grad`, `gelu_grad2`, `gelu_backward` take any NumPy array; `ufuncs` holds the bare ufuncs; `export` (needs
the ``onnx`` extra) writes feed-forward blocks as ONNX files and proves them on onnxruntime.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from . import forms, ufuncs
from .api import gelu, gelu_backward, gelu_grad, gelu_grad2, gelu_with_grad
from .ffn import FeedForward
from .fused import bias_gelu, bias_gelu_backward, geglu, geglu_backward
from .threads import cpu_info, get_num_threads, num_threads, set_num_threads

__version__ = "0.1.0"

__all__ = [
    "FeedForward",
    "bias_gelu",
    "bias_gelu_backward",
    "cpu_info",
    "forms",
    "geglu",
    "geglu_backward",
    "gelu",
    "gelu_backward",
    "gelu_grad",
    "gelu_grad2",
    "gelu_with_grad",
    "get_num_threads",
    "num_threads",
    "set_num_threads",
    "ufuncs",
]

# In a source tree, where Python finds this package if it starts at the root, `export` stands beside it.
_root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if all(os.path.exists(os.path.join(_root, name)) for name in ("setup.py", "export")):
    __path__.append(_root)

# Heavy parts load on first use.
_LAZY = ("accuracy", "bench", "compare", "cuda", "export", "jit", "torch")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
