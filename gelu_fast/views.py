"""Large views of more than one axis: NumPy hands them to a ufunc's loop row by row, which leaves nothing to thread."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import ufuncs
from .cpu import ufuncs as cpu

LARGE = 2 * cpu.BYTES_PER_THREAD // 4  # elements; two threads are worth waking for as many float32

_UNARY = (
    ufuncs.gelu, ufuncs.gelu_grad, ufuncs.gelu_grad2,
    ufuncs.gelu_tanh, ufuncs.gelu_tanh_grad, ufuncs.gelu_tanh_grad2,
    ufuncs.gelu_quick, ufuncs.gelu_quick_grad, ufuncs.gelu_quick_grad2,
)  # fmt: skip
_PRODUCT = {ufuncs.gelu_backward: 1, ufuncs.gelu_tanh_backward: 4, ufuncs.gelu_quick_backward: 7}
_NUMBERS = {function: number for number, function in enumerate(_UNARY)} | _PRODUCT


def over_rows(function: np.ufunc, inputs: tuple[np.ndarray[Any, Any], ...], out: Any) -> Any:
    """``function(*inputs, out=out)`` with threads over rows, or None where that is the ufunc's business.

    inputs: of one shape and one native float dtype. The axis along which the last input is densest becomes the row.
    """
    x = inputs[-1]
    if x.ndim < 2 or not all(a.flags.aligned for a in inputs):
        return None
    if out is not None:
        fits = type(out) is np.ndarray and out.dtype == x.dtype and out.shape == x.shape and out.flags.behaved
        if not fits or any(np.may_share_memory(out, a) for a in inputs):
            return None
    result = np.empty_like(x) if out is None else out
    kind = cpu.PRODUCT if function in _PRODUCT else cpu.UNARY
    *rows, target = densest_last(x, *inputs, result)
    cpu.run_rows(kind, _NUMBERS[function], tuple(rows), (target,))
    return result


def densest_last(guide: np.ndarray[Any, Any], *arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Views of `arrays` with their axes in the order of `guide`'s strides, the smallest last: a row."""
    axes = sorted(range(guide.ndim), key=lambda k: -abs(guide.strides[k]))
    return [a.transpose(axes) for a in arrays]
