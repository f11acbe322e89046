"""The fused forms step by step, for arrays that must see every step: of Dask, pandas and xarray, and masked ones.

Bits are those of the steps: in 16-bit types each is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .checks import is_foreign, result_dtype
from .ufuncs import gelu, gelu_backward, gelu_quick, gelu_quick_backward, gelu_tanh, gelu_tanh_backward

_FORWARD = (gelu, gelu_tanh, gelu_quick)
_BACKWARD = (gelu_backward, gelu_tanh_backward, gelu_quick_backward)


def needs_steps(*arrays: Any) -> bool:
    """Whether one is of a type that must see every step itself."""
    plain = (np.ndarray, np.memmap)
    return is_foreign(*arrays) or any(isinstance(a, np.ndarray) and type(a) not in plain for a in arrays)


def stepped_bias_gelu(x: Any, bias: Any, form: int, out: Any) -> Any:
    x, bias = _floats(x, bias)
    return _FORWARD[form](x + bias) if out is None else _FORWARD[form](x + bias, out=out)


def stepped_bias_gelu_backward(dy: Any, x: Any, bias: Any, form: int) -> tuple[Any, Any]:
    dy, x, bias = _floats(dy, x, bias)
    dx = _BACKWARD[form](dy, x + bias)
    if dx.ndim == 1:
        return dx, dx.copy()
    # A DataFrame sums over one axis, not over a tuple.
    return dx, dx.sum(axis=0 if dx.ndim == 2 else tuple(range(dx.ndim - 1)))


def stepped_geglu(x: Any, form: int, halves: Callable[[Any], tuple[Any, Any]], out: Any) -> Any:
    """halves: (gate, value) of an array."""
    gate, value = halves(x)
    if is_labelled(x):
        # The labels of the two halves differ, and xarray would multiply what has the same label: nothing.
        data = np.multiply(value.data, _FORWARD[form](gate.data), **({} if out is None else {"out": out}))
        return value.copy(data=data) if out is None else out
    return np.multiply(value, _FORWARD[form](gate), **({} if out is None else {"out": out}))


def stepped_geglu_backward(
    dy: Any, x: Any, form: int, halves: Callable[[Any], tuple[Any, Any]], first: bool, out: Any
) -> Any:
    raw_dy, raw_x = _floats(*(a.data if is_labelled(a) else a for a in (dy, x)))
    gate, value = halves(raw_x)
    parts = [_BACKWARD[form](raw_dy * value, gate), raw_dy * _FORWARD[form](gate)]
    join = np.ma.concatenate if any(isinstance(a, np.ma.MaskedArray) for a in parts) else np.concatenate
    joined = join(parts if first else parts[::-1], axis=-1)
    if out is not None:
        out[...] = joined
        return out
    return x.copy(data=joined) if is_labelled(x) else joined


def is_labelled(x: Any) -> bool:
    """Whether it is xarray's: an array inside an array."""
    return hasattr(x, "dims") and hasattr(x, "coords") and hasattr(x, "data")


def _floats(*arrays: Any) -> tuple[Any, ...]:
    """Integers and bools in the float type of the result, as their own sums and products wrap around."""
    dtypes = [d for a in arrays if isinstance(d := getattr(a, "dtype", None), np.dtype)]
    if len(dtypes) < len(arrays) or all(d.kind not in "biu" for d in dtypes):
        return arrays
    common = result_dtype(*(np.empty(0, d) for d in dtypes))
    return tuple(a.astype(common) if a.dtype.kind in "biu" else a for a in arrays)
