"""The feed-forward block and the fused forms beside torch, onnxruntime and NumPy; `make bench-ffn`.

Every answer is checked first; then all take turns in one process. Prints medians in microseconds and the ratio to the
best of torch and onnxruntime; exit code 1 if an answer is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import threadpoolctl
import torch
from onnx import helper
from rich.console import Console
from rich.table import Table

import gelu_fast as gf
from gelu_fast.bench.contenders import Contender
from gelu_fast.bench.timing import FULL, SHORT, compare

Call = Callable[[], Any]
IN, HIDDEN = 512, 2048
RTOL, ATOL = 2e-4, 2e-4  # float32 sums of 2,048 products, against float64
NAMES = ("gelu_fast", "torch", "onnxruntime", "NumPy")


def session(model: bytes, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def bias_gelu_model(width: int) -> bytes:
    shapes = {"x": ["n", width], "b": [width], "y": ["n", width]}
    values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    node = helper.make_node("BiasGelu", ["x", "b"], ["y"], domain="com.microsoft")
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "bias_gelu", values[:2], values[2:])
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def bound(sess: Any, inputs: dict[str, Any], y: np.ndarray) -> Call:
    binding = sess.io_binding()
    for name, array in inputs.items():
        binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    name = sess.get_outputs()[0].name
    binding.bind_output(name, "cpu", 0, np.float32, y.shape, y.ctypes.data)

    def call() -> Any:
        sess.run_with_iobinding(binding)
        return y

    return call


def feed_forward(batch: int, threads: int) -> tuple[str, np.ndarray, dict[str, Call]]:
    rng = np.random.default_rng(0)
    x, w1, b1, w2, b2 = (
        (rng.standard_normal(s) * c).astype(np.float32)
        for s, c in (((batch, IN), 1), ((IN, HIDDEN), IN**-0.5), (HIDDEN, 0.1), ((HIDDEN, IN), HIDDEN**-0.5), (IN, 0.1))
    )
    ff = gf.FeedForward(w1, b1, w2, b2)
    exact = gf.FeedForward(*(a.astype(np.float64) for a in (w1, b1, w2, b2)))(x.astype(np.float64))
    out, hidden = np.empty((batch, IN), np.float32), np.empty((batch, HIDDEN), np.float32)
    module = torch.nn.Sequential(torch.nn.Linear(IN, HIDDEN), torch.nn.GELU(), torch.nn.Linear(HIDDEN, IN))
    with torch.no_grad():
        for k, (w, b) in ((0, (w1, b1)), (2, (w2, b2))):
            module[k].weight[:], module[k].bias[:] = torch.from_numpy(w.T.copy()), torch.from_numpy(b)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ffn.onnx"
        gf.export.export_ffn((w1, b1, w2, b2), path, approximate="none")
        sess = session(path.read_bytes(), threads)
    tx = torch.from_numpy(x)

    def by_torch() -> Any:
        with torch.inference_mode():
            return module(tx)

    def products() -> None:
        np.matmul(x, ff.w1, out=hidden)
        np.matmul(hidden, ff.w2, out=out)

    calls = {
        "gelu_fast": lambda: ff(x, out=out), "torch": by_torch,
        "onnxruntime": bound(sess, {sess.get_inputs()[0].name: x}, np.empty_like(out)), "NumPy": products,
    }  # fmt: skip
    return f"feed forward {IN} → {HIDDEN} → {IN}, batch {batch:,}", exact, calls


def fused(threads: int) -> list[tuple[str, np.ndarray, dict[str, Call]]]:
    rng = np.random.default_rng(0)
    x, wide, dy = (rng.standard_normal(s).astype(np.float32) for s in ((1024, 2048), (1024, 4096), (1024, 2048)))
    bias, out, grad = x[0] / 10, np.empty_like(x), np.empty_like(wide)  # a trained bias is small
    tx, twide, tdy, tbias = (torch.from_numpy(a) for a in (x, wide, dy, bias))
    gelu, backward = torch.nn.functional.gelu, torch.ops.aten.gelu_backward

    def gated_backward() -> Any:
        value, gate = twide.chunk(2, -1)
        return torch.cat([tdy * gelu(gate), backward(tdy * value, gate)], -1)

    def bias_backward() -> Any:
        dx = backward(tdy, tx + tbias)
        return dx, dx.sum(0)

    def gated() -> Any:
        value, gate = twide.chunk(2, -1)
        return value * gelu(gate)

    x64, wide64, dy64, bias64 = (a.astype(np.float64) for a in (x, wide, dy, bias))
    return [
        ("bias_gelu 1,024 × 2,048", gf.gelu(x64 + bias64), {
            "gelu_fast": lambda: gf.bias_gelu(x, bias, out=out), "torch": lambda: gelu(tx + tbias),
            "onnxruntime": bound(session(bias_gelu_model(2048), threads), {"x": x, "b": bias}, np.empty_like(out)),
        }),
        ("bias_gelu_backward 1,024 × 2,048", gf.gelu_backward(dy64, x64 + bias64), {
            "gelu_fast": lambda: gf.bias_gelu_backward(dy, x, bias), "torch": bias_backward,
        }),
        ("geglu 1,024 × 4,096", gf.geglu(wide64), {"gelu_fast": lambda: gf.geglu(wide, out=out), "torch": gated}),
        ("geglu_backward 1,024 × 4,096", gf.geglu_backward(dy64, wide64), {
            "gelu_fast": lambda: gf.geglu_backward(dy, wide, out=grad), "torch": gated_backward,
        }),
    ]  # fmt: skip


def close(found: Any, exact: np.ndarray) -> bool:
    found = found[0] if isinstance(found, tuple) else found
    return np.allclose(np.asarray(found, np.float64), exact, rtol=RTOL, atol=ATOL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split(";")[0])
    parser.add_argument("--full", action="store_true", help="measure longer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=("block", "fused"), help="one half of the table")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    gf.set_num_threads(args.threads)
    pools = ", ".join(f"{p['internal_api']} {p['num_threads']}" for p in threadpoolctl.threadpool_info())
    table = Table(title=f"{args.threads} threads on {os.cpu_count()} CPUs, {gf.cpu_info()['isa']}; pools: {pools}")
    table.add_column("work", no_wrap=True)
    for name in (*(f"{n}, µs" for n in NAMES), "best peer/ours", "NumPy/ours"):
        table.add_column(name, justify="right", no_wrap=True)
    wrong = 0
    with threadpoolctl.threadpool_limits(args.threads):
        batches = () if args.only == "fused" else (1, 8, 128, 1024, 8192)
        works = [feed_forward(n, args.threads) for n in batches]
        works += fused(args.threads) if args.only != "block" else []
        for title, exact, calls in works:
            bad = [name for name, call in calls.items() if name != "NumPy" and not close(call(), exact)]
            wrong += len(bad)
            contenders = [Contender(n, c, lambda: np.empty(0)) for n, c in calls.items()]
            found = compare(contenders, FULL if args.full else SHORT, args.threads)
            took = {name: t.median / 1e3 for name, t in zip(calls, found, strict=True)}
            best = min(t for name, t in took.items() if name in ("torch", "onnxruntime"))
            cells = [f"{took[n]:,.0f}{' WRONG' if n in bad else ''}" if n in took else "" for n in NAMES]
            numpy = f"{took['NumPy'] / took['gelu_fast']:.2f}×" if "NumPy" in took else ""
            table.add_row(title, *cells, f"{best / took['gelu_fast']:.2f}×", numpy)
    Console(width=150).print(table)
    print("NumPy: its two matrix products alone, without bias and activation. out= is given where a library takes it.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
