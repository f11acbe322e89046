"""One readable page: a PyTorch block exported to ONNX, checked in onnxruntime, and GELU timed three ways.

`make demo` runs this. Answers are checked before anything is timed; the contenders take turns in one process,
and a time is the median over all turns.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import nn

import gelu_fast as gf
from gelu_fast import export

FOLDER = Path("demo-output")
WIDTH, HIDDEN = 512, 2048
BATCHES = (1, 8, 33)
ROWS = (8, 1024)
TURNS, CALLS = 15, 5  # each contender in turn, so many calls at a time


class FeedForwardBlock(nn.Module):
    """The block people write."""

    def __init__(self, input_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(input_dim, hidden_dim)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden_dim, input_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))


def main() -> None:
    torch.manual_seed(0)
    block = FeedForwardBlock(WIDTH, HIDDEN).eval()
    FOLDER.mkdir(exist_ok=True)
    report = export.export_ffn(block, FOLDER / "ffn.onnx", overwrite=True)

    print("1. Export: FeedForwardBlock(512, 2048) from PyTorch to ONNX, checked against float64\n")
    print(report)

    print("\n2. The file in onnxruntime against PyTorch's own forward pass, float32, random batches\n")
    session = onnxruntime.InferenceSession(str(report.path), providers=["CPUExecutionProvider"])
    for batch in BATCHES:
        x = torch.randn(batch, WIDTH)
        with torch.no_grad():
            theirs = block(x).numpy()
        ours = session.run(None, {"x": x.numpy()})[0]
        error = float(np.abs(ours - theirs).max())
        # Both are float32, with errors of a few 1e-7 each; a wrong formula or weight shows as 1e-5 or more.
        if ours.shape != theirs.shape or not error < 4e-6:
            raise SystemExit(f"batch {batch}: onnxruntime and PyTorch differ by {error:.3g}")
        print(f"   batch {batch:>2}: {ours.shape[0]} × {ours.shape[1]} outputs, largest difference {error:.2e}")

    isa = gf.cpu_info()["isa"]
    print(f"\n3. GELU alone on hidden activations, float32, exact form; one thread, ISA {isa}\n")
    print(f"   {'':<28}" + "".join(f"{f'{rows} × {HIDDEN}':>22}" for rows in ROWS))
    # One thread: on a machine that others use too, a pool waits for whichever core is taken, and the figure means
    # nothing (torch: 20 us became 8 ms). `make bench` has the threaded comparison.
    torch.set_num_threads(1)
    with gf.num_threads(1):
        columns = [_time_gelu(block, rows) for rows in ROWS]
    for name in columns[0]:
        cells = [f"{c[name] * 1e6:9.1f} µs  ({c['torch'] / c[name]:4.2f}×)" for c in columns]
        print(f"   {name:<28}" + "".join(f"{cell:>22}" for cell in cells))
    print("\n   In brackets: speed relative to torch. out= writes into an existing array, the rest allocate.")
    print(f"\nThe model: {report.path.resolve()}")


def _time_gelu(block: FeedForwardBlock, rows: int) -> dict[str, float]:
    """Seconds per call by contender, the median."""
    with torch.no_grad():
        tensor = block.fc1(torch.randn(rows, WIDTH)).contiguous()
    hidden = tensor.numpy()
    out, tensor_out = np.empty_like(hidden), torch.empty_like(tensor)
    session = _gelu_session()
    aten = torch.ops.aten.gelu.out
    contenders: dict[str, Callable[[], object]] = {
        "torch": lambda: torch.nn.functional.gelu(tensor),
        "torch, out=": lambda: aten(tensor, out=tensor_out),
        "onnxruntime": lambda: session.run(None, {"x": hidden})[0],
        "gelu_fast.gelu": lambda: gf.gelu(hidden),
        "gelu_fast.ufuncs.gelu, out=": lambda: gf.ufuncs.gelu(hidden, out=out),
    }
    sample = slice(0, 4096)
    exact = np.array([0.5 * v * math.erfc(-v * math.sqrt(0.5)) for v in hidden.ravel()[sample].tolist()])
    for name, call in contenders.items():
        error = float(np.abs(np.asarray(call()).ravel()[sample] - exact).max())
        if not error < 1e-6:  # a few float32 roundings of values of about 3
            raise SystemExit(f"{name}: wrong by {error:.3g}")
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(TURNS):
        for name, call in contenders.items():
            call()
            for _ in range(CALLS):
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def _gelu_session() -> onnxruntime.InferenceSession:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", HIDDEN]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Gelu", ["x"], ["y"])], "gelu", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
