"""How long a model takes in onnxruntime, beside the same block in other forms and in torch.

All candidates are timed in turns in one process, so that a machine that slows down slows all of them; the median of
the rounds is reported. Each runs on one thread: the idle threads of one library's pool spin, and would slow down the
next.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gelu_fast.export import graph, targets, writing
from gelu_fast.export.blocks import Array, Stack
from gelu_fast.export.runtime import Program, Runner, prepare

if TYPE_CHECKING:
    import onnx

BATCHES = (1, 8, 128)
_ROUNDS = 15
_LARGEST = 1 << 28  # bytes of weights; each form holds them once
_ROUND_SECONDS = 2e-3  # one measurement repeats its call at least this long


@dataclass(frozen=True)
class Latency:
    """How long one candidate takes.

    Attributes
    ----------
    name : str
        A form, or ``"torch"``.
    microseconds : dict of int to float
        Median by batch, on one thread.
    operators : tuple of str
        Those that onnxruntime kept; empty for torch.
    """

    name: str
    microseconds: dict[int, float]
    operators: tuple[str, ...]


def in_all_forms(stack: Stack, formula: str, dims: Sequence[str]) -> dict[str, onnx.ModelProto]:
    """The stack in every form that the installed runtime runs in its dtype; none if the weights are large."""
    if sum(array.nbytes for array in stack.tensors.values()) > _LARGEST:
        return {}
    found = {}
    for form, plan in targets.available(None, formula, stack.dtype.name, len(dims) + 1).items():
        found[form] = graph.build_model(stack, formula, plan, dims)
        writing.fill(found[form], graph.stored(stack)[0])
    return found


def measure(
    own: Mapping[str, Program], others: Mapping[str, onnx.ModelProto], stack: Stack, formula: str, rank: int, dtype: Any
) -> tuple[Latency, ...]:
    """Time a model, the same block in other forms, and torch if it's installed.

    Parameters
    ----------
    own : mapping of str to Program
        The model's form, and what runs it.
    others : mapping of str to onnx.ModelProto
        Form to a model of the same block; weights inside.
    stack : Stack
    formula : {"none", "tanh", "quick"}
    rank : int
        Of the input.
    dtype : dtype
        Of the input.
    """
    programs = {**own, **{name: prepare(m, None, None) for name, m in others.items() if name not in own}}
    calls: dict[str, Callable[[Array], Any]] = {}
    operators: dict[str, tuple[str, ...]] = {}
    rng = np.random.default_rng(0)
    inputs = {
        batch: rng.standard_normal((batch, *(1,) * (rank - 2), stack.in_features)).astype(dtype) for batch in BATCHES
    }
    for name, program in programs.items():
        with tempfile.TemporaryDirectory(prefix="gelu-fast-") as folder:
            operators[name] = Runner(program, profile=Path(folder)).look(inputs[1])[0]
        calls[name] = Runner(program, threads=1)
    torch_call = _torch(stack, formula, dtype)
    if torch_call is not None:
        calls["torch"] = torch_call
    times: dict[str, dict[int, float]] = {name: {} for name in calls}
    for batch, x in inputs.items():
        for name, seconds in _alternate(calls, x).items():
            times[name][batch] = round(seconds * 1e6, 2)
    return tuple(Latency(name, found, operators.get(name, ())) for name, found in times.items())


def _alternate(calls: Mapping[str, Callable[[Array], Any]], x: Array) -> dict[str, float]:
    repeats = {}
    for name, call in calls.items():
        call(x)
        start = time.perf_counter()
        call(x)
        repeats[name] = max(1, round(_ROUND_SECONDS / max(time.perf_counter() - start, 1e-7)))
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call(x)
            rounds[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(found) for name, found in rounds.items()}


def _torch(stack: Stack, formula: str, dtype: Any) -> Callable[[Array], Any] | None:
    """The stack in torch in the model's dtype, input and output as NumPy arrays; None without torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch
    from torch.nn import functional

    def tensor(array: Array) -> torch.Tensor:
        if array.dtype.name == "bfloat16":  # torch can't read NumPy's
            return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
        return torch.from_numpy(array)

    def activate(h: torch.Tensor) -> torch.Tensor:
        return h * torch.sigmoid(1.702 * h) if formula == "quick" else functional.gelu(h, approximate=formula)

    layers = [
        [None if a is None else tensor(np.ascontiguousarray(a.T)) for a in (b.w1, b.b1, b.w2, b.b2)]
        for b in stack.astype(dtype).blocks
    ]

    def call(x: Array) -> torch.Tensor:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return run(x)
        finally:
            torch.set_num_threads(before)

    def run(x: Array) -> torch.Tensor:
        with torch.inference_mode():
            y = tensor(x)
            for w1, b1, w2, b2 in layers:
                assert w1 is not None
                assert w2 is not None
                y = functional.linear(activate(functional.linear(y, w1, b1)), w2, b2)
            return y

    return call
