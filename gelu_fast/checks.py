"""What every front door checks: dtypes, forms, `out`, and whose arrays they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from .cpu.ufuncs import bfloat16, gelu, gelu_backward
from .forms import FORMS

FLOATS: set[np.dtype[Any]] = {np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)}
if bfloat16 is not None:
    FLOATS.add(bfloat16)
EXPECTED = f"{', '.join(sorted(d.name for d in FLOATS))}, integers or bools"


def unknown_form(approximate: Any) -> ValueError:
    """The error for an `approximate` that is none of the three."""
    return ValueError(
        f"approximate: expected one of {', '.join(map(repr, FORMS))}, got {approximate!r}; gelu_fast.forms.resolve "
        "translates other libraries' names"
    )


def form_number(approximate: Any) -> int:
    """0 to 2."""
    try:
        return FORMS.index(approximate)
    except ValueError:
        raise unknown_form(approximate) from None


def as_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """As NumPy makes it; TypeError for a PyTorch tensor that NumPy can't take, with a gradient or in bfloat16."""
    try:
        return np.asarray(value)
    except (TypeError, RuntimeError) as error:
        if not hasattr(type(value), "__torch_function__"):
            raise
        kind = type(value).__name__
        raise TypeError(
            f"{name}: a torch.{kind} can't become a NumPy array ({error}); gelu_fast.torch takes tensors"
        ) from error


def is_foreign(*arrays: Any) -> bool:
    """Whether one of them answers for itself through ``__array_ufunc__`` (pandas, xarray, dask)."""
    return any(hasattr(type(a), "__array_ufunc__") and not isinstance(a, np.ndarray | np.generic) for a in arrays)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether it is one of ours, in any byte order."""
    return dtype in FLOATS or dtype.newbyteorder("=") in FLOATS


def result_dtype(*values: Any) -> np.dtype[Any]:
    """The native dtype that results from arrays of floats, integers and bools, and Python's numbers.

    The ufuncs are asked: `numpy.result_type` knows nothing of int8 with uint8 in a float16, or of two 16-bit floats.
    """
    kinds = [_kind(v) for v in values]
    common: np.dtype[Any] = kinds[0]
    if common in FLOATS and all(kind is common for kind in kinds):
        return common
    # Floats before integers, so that of three the order does not matter.
    kinds.sort(key=lambda kind: not (isinstance(kind, np.dtype) and is_float(kind)))
    common = gelu.resolve_dtypes((kinds[0], None))[-1] if len(kinds) == 1 else kinds[0]
    for kind in kinds[1:]:
        common = gelu_backward.resolve_dtypes((common, kind, None))[-1]
    return common


def _kind(value: Any) -> Any:
    """A dtype, or ``int`` or ``float`` for Python's own."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype
    return np.dtype(bool) if isinstance(value, bool) else int if isinstance(value, int) else float


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise unless `out` can take a result."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out: expected a NumPy array of {dtype} and shape {shape}, got {type(out).__name__}")
    if out.dtype.newbyteorder("=") != dtype:
        raise ValueError(f"out: expected dtype {dtype}, got {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"out: expected shape {shape}, got {out.shape}")
    if not out.flags.writeable:
        raise ValueError("out: the array is read-only")
