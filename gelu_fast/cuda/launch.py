"""From arrays to a launch: checks, the result's memory, streams, the grid."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from . import driver, interface, layout
from .interface import ITEMSIZE, View

BLOCK = 256  # threads


def serve(function: str, arrays: dict[str, Any], out: Any) -> Any:
    """An element-wise function by its ufunc's name: ``gelu``, ``gelu_tanh_grad``, ``gelu_quick_backward`` and so on."""
    if function.endswith("_with_grad"):
        stem = function.removesuffix("_with_grad")
        return serve(stem, arrays, out), serve(f"{stem}_grad", arrays, out)
    views = {name: interface.view(name, a) for name, a in arrays.items()}
    shape = np.broadcast_shapes(*(v.shape for v in views.values()))
    return run(function, list(arrays.values()), [_broadcast(v, shape) for v in views.values()], out)


def serve_bias(function: str, x: Any, bias: Any, out: Any) -> Any:
    """``function(x + bias)``."""
    view, other = interface.view("x", x), interface.view("bias", bias)
    if not view.shape:
        raise ValueError("x: expected at least one axis, got none")
    if other.shape != view.shape[-1:]:
        raise ValueError(f"bias: expected shape {view.shape[-1:]}, the last axis of x, got {other.shape}")
    return run(f"bias_{function}", [x, bias], [view, _broadcast(other, view.shape)], out)


def serve_gate(function: str, x: Any, first: bool, out: Any) -> Any:
    """One half of the last axis times `function` of the other; first: the gate is the first half."""
    view = interface.view("x", x)
    if not view.shape or view.shape[-1] % 2:
        raise ValueError(f"x: expected a last axis of even length, got shape {view.shape}")
    n = view.shape[-1] // 2
    low = replace(view, shape=(*view.shape[:-1], n))
    high = replace(low, address=low.address + n * view.strides[-1] if view.size else 0)
    return run(f"gate_{function}", [x], [low, high] if first else [high, low], out)


def run(operation: str, arrays: list[Any], inputs: list[View], out: Any) -> Any:
    """An operation of kernels.py over inputs of one shape; the result, or `out`."""
    dtype, shape = inputs[0].dtype, inputs[0].shape
    if any(v.dtype != dtype for v in inputs):
        raise TypeError(f"arrays on a device are not promoted: expected one dtype, got "
                        f"{' and '.join(v.dtype for v in inputs)}")  # fmt: skip
    devices = {v.device for v in inputs if v.device is not None}
    if len(devices) > 1:
        raise ValueError(f"expected arrays on one device, got devices {sorted(devices)}")
    cuda = driver.check()
    place = devices.pop() if devices else None
    with contextlib.nullcontext() if place is None or driver.is_simulator() else cuda.gpus[place]:
        streams = [v.stream for v in inputs if v.stream is not None]
        stream = streams[0] if streams else None
        if out is None:
            like = max(inputs, key=lambda v: sum(s != 0 for s in v.strides))
            out = _empty(arrays[0], like, stream)
            target = interface.view("out", out)
        else:
            target = _checked_out(out, inputs, place)
        if not target.size:
            return out
        plan = layout.plan(shape, [v.strides for v in [*inputs, target]], [v.address for v in [*inputs, target]],
                           ITEMSIZE[dtype])  # fmt: skip
        _launch(cuda, operation, dtype, plan, [*inputs, target], stream)
    return out


def _broadcast(v: View, shape: tuple[int, ...]) -> View:
    missing = len(shape) - len(v.shape)
    strides = tuple(s if n == m else 0 for n, m, s in zip(v.shape, shape[missing:], v.strides, strict=True))
    return replace(v, shape=shape, strides=(0,) * missing + strides)


def _checked_out(out: Any, inputs: list[View], place: int | None) -> View:
    """`out`, if it can take a result."""
    target, dtype, shape = interface.view("out", out), inputs[0].dtype, inputs[0].shape
    if target.dtype != dtype:
        raise ValueError(f"out: expected dtype {dtype}, got {target.dtype}")
    if target.shape != shape:
        raise ValueError(f"out: expected shape {shape}, got {target.shape}")
    if target.readonly:
        raise ValueError("out: the array is read-only")
    if None not in (place, target.device) and place != target.device:
        raise ValueError(f"out: expected an array on device {place}, got device {target.device}")
    if not target.size:
        return target
    if any(s == 0 and n > 1 for n, s in zip(shape, target.strides, strict=True)):
        raise ValueError("out: several elements share one place in memory")
    low, high = target.extent()
    for v in inputs:
        start, end = v.extent()
        same = v.address == target.address and v.strides == target.strides
        if start < high and low < end and not same:
            raise ValueError("out: it overlaps an input without being the same view of it; pass another array, or none")
    return target


def _empty(like: Any, v: View, stream: int | None) -> Any:
    """An array of the library of `like`, of the shape and dtype of `v`, its axes in memory in the order of v's."""
    axes = layout.order(v.shape, v.strides)
    back = tuple(axes.index(k) for k in range(len(axes)))
    shape = tuple(v.shape[k] for k in axes)
    if interface.is_torch(like):
        return sys.modules["torch"].empty(shape, dtype=like.dtype, device=like.device).permute(back)
    if interface.is_cupy(like):
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(v.device):
            return cupy.empty(shape, like.dtype).transpose(back)
    cuda = driver.module()
    dtype = np.dtype(np.uint16 if v.dtype == "bfloat16" else v.dtype)
    strides = interface.contiguous(shape, dtype.itemsize)
    more = {} if stream is None or driver.is_simulator() else {"stream": _stream(cuda, stream)}
    return cuda.device_array(v.shape, dtype, strides=tuple(strides[k] for k in back), **more)


def _stream(cuda: Any, handle: int | None) -> Any:
    if handle is None:
        return cuda.default_stream()
    if handle == 1:
        return cuda.legacy_default_stream()
    if handle == 2:
        return cuda.per_thread_default_stream()
    return cuda.external_stream(handle)


def _launch(cuda: Any, operation: str, dtype: str, plan: layout.Plan, operands: list[View], stream: int | None) -> None:
    from . import kernels

    numbers = [plan.rows, plan.columns, plan.head, plan.vectors]
    for v, steps in zip(operands, plan.strides, strict=True):
        numbers += [v.address, *steps]
    if driver.is_simulator():
        kernels.kernel(operation, dtype, True)[(2, 2), (3, 2)](*numbers)
        return
    packed, processors = _capabilities(cuda.get_current_device().id)
    queue = _stream(cuda, stream)
    others = {v.stream for v in operands if v.stream is not None} - {stream}
    for handle in others:  # what they hold must be there first
        _after(cuda, queue, _stream(cuda, handle))
    kernel = kernels.kernel(operation, dtype, packed)
    kernel[(*grid(plan, processors), queue)](*numbers)
    if operands[-1].stream not in (None, stream):  # who reads `out` waits in its own stream
        _after(cuda, _stream(cuda, operands[-1].stream), queue)


def _after(cuda: Any, later: Any, earlier: Any) -> None:
    event = cuda.event(timing=False)
    event.record(earlier)
    event.wait(later)


@cache
def _capabilities(device: int) -> tuple[bool, int]:
    """Whether it rounds two numbers at a time, and its number of multiprocessors."""
    found = driver.module().gpus[device]
    return tuple(found.compute_capability) >= (8, 0), int(found.MULTIPROCESSOR_COUNT)


def grid(plan: layout.Plan, processors: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Blocks and threads. Rows shorter than a block share one; a thread goes on where there is more than fits."""
    work = plan.vectors or plan.columns
    across = min(BLOCK, 1 << (work - 1).bit_length())
    down = BLOCK // across
    blocks = min(-(-work // across), processors * 64)
    blocks_down = min(-(-plan.rows // down), max(1, processors * 64 // blocks), 65535)
    # Numba warns of less than 128 blocks; more of them that have nothing to do cost less than a microsecond.
    return (max(blocks, -(-128 // blocks_down)), blocks_down), (across, down)
