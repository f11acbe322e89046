"""primitives.py for the CUDA simulator (``NUMBA_ENABLE_CUDASIM=1``): the same names in plain Python over NumPy scalars.

Memory is an address here too, of this process.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

_libm = ctypes.CDLL(None)  # Python is linked with it
_FMA: dict[type, Any] = {np.float32: _libm.fmaf, np.float64: _libm.fma}
for _number, _function in ((ctypes.c_float, _libm.fmaf), (ctypes.c_double, _libm.fma)):
    _function.restype, _function.argtypes = _number, [_number] * 3

_UINT: dict[type, tuple[Any, int]] = {np.float32: (np.uint32, 23), np.float64: (np.uint64, 52)}


def function(python_function: Callable[..., Any]) -> Any:
    """As it is."""
    return python_function


def outer(python_function: Callable[..., Any]) -> Any:
    """As it is, without NumPy's floating-point warnings (their switch is each thread's own)."""

    @functools.wraps(python_function)
    def quiet(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return python_function(*args)

    return quiet


def strict(a: Any) -> Any:
    return a


def fma(a: Any, b: Any, c: Any) -> Any:
    number = type(a)
    return number(_FMA[number](a, b, c))


def div(a: Any, b: Any) -> Any:
    return a / b


def exp2(a: Any) -> Any:
    return np.exp2(a)


def magnitude(a: Any) -> Any:
    return abs(a)


def polynomial(u: Any, coefs: Any) -> Any:
    total = coefs[-1]
    for c in coefs[-2::-1]:
        total = fma(total, u, c)
    return total


def low_bits_as_exponent(a: Any) -> Any:
    integer, mantissa = _UINT[type(a)]
    return (a.view(integer) << integer(mantissa)).view(type(a))


widen = narrow = None


def make_memory(dtype: str, packed: bool) -> dict[str, Any]:
    """As primitives.make_memory."""
    if dtype == "bfloat16":
        size = 2
    else:
        stored: Any = np.dtype(dtype).type
        size = np.dtype(dtype).itemsize

    def load(address: int) -> Any:
        raw = ctypes.string_at(address, size)
        if dtype == "bfloat16":
            return np.frombuffer(b"\0\0" + raw, np.float32)[0]
        found = np.frombuffer(raw, stored)[0]
        return np.float32(found) if dtype == "float16" else found

    def store(address: int, value: Any) -> None:
        with np.errstate(all="ignore"):
            cell = _bfloat16_bits(value) if dtype == "bfloat16" else stored(value)
        ctypes.memmove(address, cell.tobytes(), size)

    def load_vector(address: int) -> Any:
        assert address % 16 == 0
        return tuple(load(address + at) for at in range(0, 16, size))

    def store_vector(address: int, values: Any) -> None:
        assert address % 16 == 0
        for k, value in enumerate(values):
            store(address + k * size, value)

    return {"load": load, "store": store, "load_vector": load_vector, "store_vector": store_vector}


def make_scatter(dtype: str, count: int) -> Any:
    """As primitives.make_scatter."""
    store, size = make_memory(dtype, True)["store"], np.dtype(dtype).itemsize

    def scatter(address: int, values: Any) -> None:
        for k, value in enumerate(values):
            store(address + k * size, value)

    return scatter


def _bfloat16_bits(value: Any) -> Any:
    bits = int(value.view(np.uint32))
    return np.uint16(0x7FFF if value != value else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
