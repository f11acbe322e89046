"""A result's memory: by the library whose arrays come in."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import driver, interface, layout
from .interface import ITEMSIZE, View, contiguous


def empty_like(like: Any, v: View, stream: int | None) -> tuple[Any, View]:
    """An array of the library of `like`, of the shape and dtype of `v`, its axes in memory in the order of v's."""
    axes = layout.order(v.shape, v.strides)
    if axes == tuple(range(len(axes))):
        return empty(like, v.shape, v, stream)
    shape = tuple(v.shape[k] for k in axes)
    back = tuple(axes.index(k) for k in range(len(axes)))
    steps = contiguous(shape, ITEMSIZE[v.dtype])
    strides = tuple(steps[k] for k in back)
    if interface.is_torch(like):
        made = sys.modules["torch"].empty(shape, dtype=like.dtype, device=like.device).permute(back)
    elif interface.is_cupy(like):
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(v.device):
            made = cupy.empty(shape, like.dtype).transpose(back)
    else:
        made = _of_numba(v.shape, _stored(v.dtype), strides, stream)
    return made, View(_address(made), v.shape, strides, v.dtype, stream=stream, device=v.device)


def empty(like: Any, shape: tuple[int, ...], v: View, stream: int | None) -> tuple[Any, View]:
    """An array of the library of `like`, in C order, of the dtype and on the device of `v`, which is a view of it."""
    if interface.is_torch(like):
        made = sys.modules["torch"].empty(shape, dtype=like.dtype, device=like.device)
    elif interface.is_cupy(like):
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(v.device):
            made = cupy.empty(shape, like.dtype)
    else:
        made = _of_numba(shape, _stored(v.dtype), contiguous(shape, ITEMSIZE[v.dtype]), stream)
    strides = contiguous(shape, ITEMSIZE[v.dtype])
    return made, View(_address(made), shape, strides, v.dtype, stream=stream, device=v.device)


def scratch(like: Any, nbytes: int, v: View, stream: int | None) -> tuple[Any, int]:
    """Memory for a computation on the device of `v`, and its address."""
    if interface.is_torch(like):
        torch = sys.modules["torch"]
        made = torch.empty(nbytes, dtype=torch.uint8, device=like.device)
    elif interface.is_cupy(like):
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(v.device):
            made = cupy.empty(nbytes, np.uint8)
    else:
        made = _of_numba((nbytes,), np.dtype(np.uint8), (1,), stream)
    return made, _address(made)


def _stored(dtype: str) -> np.dtype[Any]:
    return np.dtype(np.uint16 if dtype == "bfloat16" else dtype)


def _of_numba(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...], stream: int | None) -> Any:
    from .queue import stream_of

    cuda = driver.module()
    if stream is None or driver.is_simulator():
        return cuda.device_array(shape, dtype, strides=strides)
    return cuda.device_array(shape, dtype, strides=strides, stream=stream_of(stream, cuda.get_current_device().id))


def _address(made: Any) -> int:
    if interface.is_torch(made):
        return int(made.data_ptr())
    if interface.is_cupy(made):
        return int(made.data.ptr)
    described = made.__array_interface__ if interface.is_simulated(made) else made.__cuda_array_interface__
    return int(described["data"][0] or 0)
