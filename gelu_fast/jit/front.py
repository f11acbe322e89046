"""``backend="numba"`` of the front door: NumPy's rules for shapes, dtypes and scalars, then the array kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from gelu_fast.checks import check_out, result_dtype

from .arrays import run, run_plain

_PLAIN = (np.ndarray, np.memmap)


def serve(name: str, arrays: dict[str, Any], out: Any) -> Any:
    """One function by its ufunc's name.

    Parameters
    ----------
    name : str
        ``gelu``, ``gelu_tanh_grad``, ``gelu_quick_backward`` and so on.
    arrays : dict
        By parameter name, in order: NumPy arrays of floats, integers or bools, or what becomes one.
    out : ndarray or None

    Returns
    -------
    ndarray or scalar

    Raises
    ------
    TypeError
        If the result's dtype is not float32 or float64, or an array is of a subclass, whose own rules this backend does
        not know.
    ValueError
        If shapes can't be broadcast; if `out` has another shape or dtype or is read-only.
    """
    if (done := run_plain(name, list(arrays.values()), out)) is not None:
        return done
    for parameter, value in arrays.items():
        if isinstance(value, np.ndarray) and type(value) not in _PLAIN:
            raise TypeError(f"{parameter}: backend='numba' takes plain NumPy arrays, got {type(value).__name__}; "
                            "backend=None serves it")  # fmt: skip
    values = list(arrays.values())
    dtype = result_dtype(*values)
    if dtype not in (np.float32, np.float64):
        given = ", ".join(f"{parameter} of {np.asarray(value).dtype}" for parameter, value in arrays.items())
        raise TypeError(f"backend='numba' computes in float32 and float64; {given} gives {dtype}, which "
                        "backend='cython' (or None) serves")  # fmt: skip
    shape = np.broadcast_shapes(*(np.shape(value) for value in values))
    if out is not None:
        check_out(out, shape, dtype)
    result = np.empty(shape, dtype) if out is None else out
    inputs = [np.asarray(value) for value in values]
    run(name, [a if a.shape == shape else np.broadcast_to(a, shape) for a in inputs], result)
    return result if shape or out is not None else result[()]
