"""Numba: the nine functions as scalars for a caller's own ``@njit`` code, and the array kernels of ``backend="numba"``.

``from gelu_fast.jit import gelu_tanh`` and call it on a float32 or float64 inside a compiled loop: it is inlined, and
the loop vectorises, for it has no branch and no table. An array, of any shape and layout, gives a new array. The names
are those of `gelu_fast.ufuncs`. `gelu_fast.gelu` itself, and its three companions, work in compiled code too.

Needs the ``numba`` extra.
"""

try:
    import numba as _numba  # noqa: F401
except ImportError as error:
    raise ImportError(f"gelu_fast.jit needs Numba ({error}): pip install 'gelu-fast[numba]'") from error

from .scalars import (
    gelu,
    gelu_grad,
    gelu_grad2,
    gelu_quick,
    gelu_quick_grad,
    gelu_quick_grad2,
    gelu_tanh,
    gelu_tanh_grad,
    gelu_tanh_grad2,
)

__all__ = [
    "gelu",
    "gelu_grad",
    "gelu_grad2",
    "gelu_quick",
    "gelu_quick_grad",
    "gelu_quick_grad2",
    "gelu_tanh",
    "gelu_tanh_grad",
    "gelu_tanh_grad2",
]
