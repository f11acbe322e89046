"""The bare ufuncs: every form and derivative as a real `numpy.ufunc`, with NumPy's casting, ``out=`` and ``where=``.

``gelu``, ``gelu_grad``, ``gelu_grad2`` are the exact form; ``gelu_tanh…`` and ``gelu_quick…`` the other two;
``…backward(dy, x)`` is dy times the first derivative; ``…with_grad(x)`` returns value and first derivative.
Loops: float16, float32, float64, and bfloat16 where ml_dtypes is installed.
"""

from .cpu.ufuncs import (
    gelu,
    gelu_backward,
    gelu_grad,
    gelu_grad2,
    gelu_quick,
    gelu_quick_backward,
    gelu_quick_grad,
    gelu_quick_grad2,
    gelu_quick_with_grad,
    gelu_tanh,
    gelu_tanh_backward,
    gelu_tanh_grad,
    gelu_tanh_grad2,
    gelu_tanh_with_grad,
    gelu_with_grad,
)

__all__ = [
    "gelu",
    "gelu_backward",
    "gelu_grad",
    "gelu_grad2",
    "gelu_quick",
    "gelu_quick_backward",
    "gelu_quick_grad",
    "gelu_quick_grad2",
    "gelu_quick_with_grad",
    "gelu_tanh",
    "gelu_tanh_backward",
    "gelu_tanh_grad",
    "gelu_tanh_grad2",
    "gelu_tanh_with_grad",
    "gelu_with_grad",
]
