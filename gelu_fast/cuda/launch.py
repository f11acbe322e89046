"""From arrays to a launch: what each front door checks, and which kernel it starts on what."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import driver, interface, layout, memory, queue
from .interface import ITEMSIZE, View


def serve(function: str, arrays: dict[str, Any], out: Any) -> Any:
    """An element-wise function by its ufunc's name: ``gelu``, ``gelu_tanh_grad``, ``gelu_quick_backward`` and so on."""
    if function.endswith("_with_grad"):
        stem = function.removesuffix("_with_grad")
        return serve(stem, arrays, out), serve(f"{stem}_grad", arrays, out)
    views = [interface.view(name, a) for name, a in arrays.items()]
    if any(v.shape != views[0].shape for v in views[1:]):
        shape = np.broadcast_shapes(*(v.shape for v in views))
        views = [_broadcast(v, shape) for v in views]
    return run(function, list(arrays.values()), views, out)


def serve_bias(function: str, x: Any, bias: Any, out: Any) -> Any:
    """``function(x + bias)``."""
    view, other = interface.view("x", x), interface.view("bias", bias)
    _check_bias(view, other)
    return run(f"bias_{function}", [x, bias], [view, _broadcast(other, view.shape)], out)


def serve_gate(function: str, x: Any, first: bool, out: Any) -> Any:
    """One half of the last axis times `function` of the other; first: the gate is the first half."""
    gate, value = _halves(interface.view("x", x), first)
    return run(f"gate_{function}", [x], [gate, value], out)


def serve_bias_backward(function: str, dy: Any, x: Any, bias: Any) -> tuple[Any, Any]:
    """(dx, dbias) of ``function(x + bias)``."""
    from . import sums

    slopes, view, other = (interface.view(*pair) for pair in (("dy", dy), ("x", x), ("bias", bias)))
    _check_bias(view, other)
    _check_shape("dy", slopes, view.shape)
    inputs = [slopes, view, _broadcast(other, view.shape)]
    dtype, n = view.dtype, view.shape[-1]
    cuda, place = _common(inputs)
    with queue.on_device(cuda, place):
        stream = _first_stream(inputs)
        like = _on(inputs, place)
        (dx, target), (dbias, total) = (memory.empty(dy, shape, like, stream) for shape in (view.shape, (n,)))
        queue.wait(cuda, stream, _streams(inputs))
        rows = view.size // n if n else 0
        blocks, source, held = 0, 0, []
        if rows:
            operands = [*inputs, target]
            plan = layout.plan(view.shape, [v.strides for v in operands], [v.address for v in operands],
                               ITEMSIZE[dtype], last=True)  # fmt: skip
            block = sums.block_of(rows, n, dtype)
            blocks = -(-rows // block)
            size = 2 * n * ITEMSIZE[sums.compute_dtype(dtype)]  # of a block's sums
            kept, source = memory.scratch(dy, blocks * size, like, stream)
            held.append(kept)
            numbers = [*_numbers(plan, operands), block, source]
            queue.start(cuda, f"bias_{function}_backward", dtype, numbers, plan.vectors or n, blocks, stream)
            while blocks > sums.LAST:
                fewer = -(-blocks // sums.LAST)
                kept, place_of = memory.scratch(dy, fewer * size, like, stream)
                held.append(kept)
                numbers = [blocks, n, sums.LAST, source, place_of]
                queue.start(cuda, "fold", sums.compute_dtype(dtype), numbers, n, fewer, stream)
                blocks, source = fewer, place_of
        if n:
            queue.start(cuda, "total", dtype, [blocks, n, source, total.address, ITEMSIZE[dtype]], n, 1, stream)
    return dx, dbias


def serve_gate_backward(function: str, dy: Any, x: Any, first: bool, out: Any) -> Any:
    """The gradient of `serve_gate` with respect to x."""
    slopes, view = interface.view("dy", dy), interface.view("x", x)
    gate, value = _halves(view, first)
    _check_shape("dy", slopes, gate.shape)
    cuda, place = _common([slopes, view])
    with queue.on_device(cuda, place):
        stream = _first_stream([slopes, view])
        if out is None:
            out, target = memory.empty(dy, view.shape, _on([slopes], place), stream)
        else:
            target = _checked_out(out, view, [slopes, view], place)
        if target.size:
            gate_out, value_out = _halves(target, first)
            operands = [slopes, gate, value, value_out, gate_out]
            _elementwise(cuda, f"gate_{function}_backward", operands, stream)
    return out


def run(operation: str, arrays: list[Any], inputs: list[View], out: Any) -> Any:
    """An operation of kernels.py over inputs of one shape; the result, or `out`."""
    cuda, place = _common(inputs)
    with queue.on_device(cuda, place):
        stream = _first_stream(inputs)
        if out is None:
            like = max(inputs, key=lambda v: sum(s != 0 for s in v.strides))
            out, target = memory.empty_like(arrays[0], _on([like], place), stream)
        else:
            target = _checked_out(out, inputs[0], inputs, place)
        if target.size:
            _elementwise(cuda, operation, [*inputs, target], stream)
    return out


def _elementwise(cuda: Any, operation: str, operands: list[View], stream: int | None) -> None:
    """Queue a kernel of kernels.py; the last operand is a result."""
    target = operands[-1]
    plan = layout.plan(target.shape, [v.strides for v in operands], [v.address for v in operands],
                       ITEMSIZE[target.dtype])  # fmt: skip
    queue.wait(cuda, stream, _streams(operands))  # what they hold must be there first
    work = plan.vectors or plan.columns
    queue.start(cuda, operation, target.dtype, _numbers(plan, operands), work, plan.rows, stream)
    if target.stream is not None:  # who reads `out` waits in its own stream
        queue.wait(cuda, target.stream, {stream})


def _numbers(plan: layout.Plan, operands: list[View]) -> list[int]:
    numbers = [plan.rows, plan.columns, plan.head, plan.vectors]
    for v, steps in zip(operands, plan.strides, strict=True):
        numbers += (v.address, *steps)
    return numbers


def _common(inputs: list[View]) -> tuple[Any, int | None]:
    """`numba.cuda`, and the device where all are, if one says so; they have one dtype."""
    if len({v.dtype for v in inputs}) > 1:
        raise TypeError(f"arrays on a device are not promoted: expected one dtype, got "
                        f"{' and '.join(v.dtype for v in inputs)}")  # fmt: skip
    devices = {v.device for v in inputs if v.device is not None}
    if len(devices) > 1:
        raise ValueError(f"expected arrays on one device, got devices {sorted(devices)}")
    return driver.check(), devices.pop() if devices else None


def _first_stream(inputs: list[View]) -> int | None:
    return next((v.stream for v in inputs if v.stream is not None), None)


def _streams(views: list[View]) -> set[int | None]:
    return {v.stream for v in views if v.stream is not None}


def _on(inputs: list[View], place: int | None) -> View:
    """The first one, with the device that another one knows."""
    return inputs[0] if inputs[0].device == place else inputs[0]._replace(device=place)


def _check_bias(view: View, bias: View) -> None:
    if not view.shape:
        raise ValueError("x: expected at least one axis, got none")
    if bias.shape != view.shape[-1:]:
        raise ValueError(f"bias: expected shape {view.shape[-1:]}, the last axis of x, got {bias.shape}")


def _check_shape(name: str, view: View, shape: tuple[int, ...]) -> None:
    if view.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {view.shape}")


def _halves(view: View, first: bool) -> tuple[View, View]:
    """(gate, value), halves of the last axis."""
    if not view.shape or view.shape[-1] % 2:
        raise ValueError(f"x: expected a last axis of even length, got shape {view.shape}")
    n = view.shape[-1] // 2
    low = view._replace(shape=(*view.shape[:-1], n))
    high = low._replace(address=low.address + n * view.strides[-1] if view.size else 0)
    return (low, high) if first else (high, low)


def _broadcast(v: View, shape: tuple[int, ...]) -> View:
    missing = len(shape) - len(v.shape)
    strides = [s if n == m else 0 for n, m, s in zip(v.shape, shape[missing:], v.strides, strict=True)]
    return v._replace(shape=shape, strides=(0,) * missing + tuple(strides))


def _checked_out(out: Any, like: View, inputs: list[View], place: int | None) -> View:
    """`out`, if it can take a result of the shape and dtype of `like`."""
    target, dtype, shape = interface.view("out", out), like.dtype, like.shape
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
        same = v.address == target.address and v.strides == target.strides and v.shape == shape
        if start < high and low < end and not same:
            raise ValueError("out: it overlaps an input without being the same view of it; pass another array, or none")
    return target
