"""gelu_fast.cuda on a GPU: are the answers right, and how near to a device copy does it come? With torch beside it.

    python benchmarks/cuda.py [--megabytes 512] [--check-only] [--small]

Needs the `cuda` extra and a GPU, and says so where there is none (exit code 2); torch with CUDA is optional. First the
errors (cuda_accuracy.py), in ULP; if all are within bounds, GB/s, which count every byte that must be read or written,
once (target: 0.9 of the copy for float32 and bfloat16), and what a call costs beside its kernel. In numba.cuda's
simulator (NUMBA_ENABLE_CUDASIM=1, with --small) the errors alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# This file's own folder comes first in a script's path, and there it would pass for NVIDIA's package `cuda`.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

import numpy as np  # noqa: E402

import gelu_fast as gf  # noqa: E402

FORMS = ("none", "tanh", "quick")
# torch 2's `gelu` has no quick form.
DTYPES = ("float32", "bfloat16", "float16", "float64")


def accuracy() -> Any:
    """The module cuda_accuracy.py, from a folder that is not in the path."""
    spec = importlib.util.spec_from_file_location("cuda_accuracy", Path(__file__).with_name("cuda_accuracy.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds(call: Callable[[], Any], repeats: int = 7) -> float:
    """The median over batches of launches that follow each other in the default stream: the GPU's time, not Python's,
    which goes ahead meanwhile."""
    from numba import cuda

    for _ in range(3):
        call()
    found = []
    for _ in range(repeats):
        start, end = cuda.event(), cuda.event()
        call()
        start.record()
        for _ in range(10):
            call()
        end.record()
        end.synchronize()
        found.append(cuda.event_elapsed_time(start, end) / 1e4)
    return float(np.median(found))


def measure(megabytes: int) -> None:
    """The table."""
    try:
        import torch

        torch = torch if torch.cuda.is_available() else None
    except ImportError:
        torch = None
    from numba import cuda

    columns = 4096
    gelu = None if torch is None else torch.nn.functional.gelu
    aten = None if torch is None else torch.ops.aten
    print(f"\n{'dtype':9} {'what':22} {'GB/s':>7} {'of copy':>8} {'torch':>7} {'ours/torch':>10}")
    for dtype in DTYPES:
        size = 2 if dtype.endswith("16") else int(dtype[-2:]) // 8
        shape = (megabytes * 2**20 // size // columns, columns)
        if torch is not None:
            x = torch.randn(shape, dtype=getattr(torch, dtype), device="cuda")
            dy, out, bias = torch.randn_like(x), torch.empty_like(x), x[0].clone()
            half, whole = out[:, : columns // 2].contiguous(), x
            copy = seconds(lambda out=out, x=x: out.copy_(x))
        else:
            host = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
            host = host.view(np.uint16)[:, ::2].copy() if dtype == "bfloat16" else host.astype(dtype)
            x = cuda.to_device(host)
            dy, out, bias = cuda.to_device(host), cuda.device_array_like(x), cuda.to_device(host[0])
            half, whole = cuda.device_array((shape[0], columns // 2), host.dtype), x
            copy = seconds(lambda out=out, x=x: out.copy_to_device(x))
        total = megabytes * 2**20
        peak = 2 * total / copy
        print(f"{dtype:9} {'copy':22} {peak / 1e9:7.0f}")
        rows: list[tuple[str, Callable[[], Any], float, Callable[[], Any] | None]] = []
        for form in FORMS:
            peer = (lambda f=form, x=x: gelu(x, approximate=f)) if torch and form != "quick" else None
            back = (
                (lambda f=form, x=x, dy=dy: aten.gelu_backward(dy, x, approximate=f))
                if torch and form != "quick" else None
            )  # fmt: skip
            rows += [
                (f"gelu {form}", lambda f=form, x=x, o=out: gf.cuda.gelu(x, f, out=o), 2, peer),
                (f"gelu_backward {form}", lambda f=form, x=x, o=out, dy=dy: gf.cuda.gelu_backward(dy, x, f, out=o), 3,
                 back),
            ]  # fmt: skip
        added = (lambda x=x, b=bias: gelu(x + b)) if torch else None
        gated = (lambda x=whole: torch.mul(x[:, : columns // 2], gelu(x[:, columns // 2 :]))) if torch else None
        stepped = (lambda x=x, b=bias, dy=dy: aten.gelu_backward(dy, x + b).sum(0)) if torch else None
        rows += [
            ("bias_gelu none", lambda x=x, b=bias, o=out: gf.cuda.bias_gelu(x, b, out=o), 2, added),
            ("geglu none", lambda x=whole, o=half: gf.cuda.geglu(x, out=o), 1.5, gated),
            ("bias_gelu_backward", lambda x=x, b=bias, dy=dy: gf.cuda.bias_gelu_backward(dy, x, b), 3, stepped),
            ("geglu_backward none", lambda x=whole, h=half, o=out: gf.cuda.geglu_backward(h, x, out=o), 2.5, None),
        ]
        for what, call, passes, peer in rows:
            speed = passes * total / seconds(call)
            line = f"{dtype:9} {what:22} {speed / 1e9:7.0f} {speed / peak:8.2f}"
            if peer is not None:
                theirs = passes * total / seconds(peer)
                line += f" {theirs / 1e9:7.0f} {speed / theirs:10.2f}"
            print(line, flush=True)


def call_cost(calls: int = 2000) -> None:
    """What Python and the driver take for a call, on so few numbers that the GPU never has to be waited for."""
    from numba import cuda

    x = cuda.to_device(np.ones(1024, np.float32))
    out = cuda.device_array_like(x)
    calls_of = {"gelu": lambda: gf.cuda.gelu(x, out=out), "gelu_backward": lambda: gf.cuda.gelu_backward(x, x, out=out)}
    for name, call in calls_of.items():
        call()
        cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        print(f"a call of {name}: {(time.perf_counter() - start) / calls * 1e6:.0f} us on the host")
        cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512, help="size of an array")
    parser.add_argument("--check-only", action="store_true", help="time nothing")
    parser.add_argument("--small", action="store_true", help="few inputs, for the simulator")
    options = parser.parse_args()
    try:
        from gelu_fast.cuda.driver import check as find
        from gelu_fast.cuda.driver import is_simulator

        cuda = find()
    except (ImportError, RuntimeError) as error:
        print(f"no GPU to measure: {error}", file=sys.stderr)
        return 2
    name = "the simulator" if is_simulator() else cuda.get_current_device().name
    print(f"{name}; numba-cuda {__import__('numba_cuda').__version__}")
    checks = accuracy()
    fine = checks.accuracy(*((512, 331) if options.small else (1 << 22, 1)))
    fine &= checks.fused(*((11, 24) if options.small else (8191, 2048)))
    if not fine:
        print("wrong answers: nothing is timed", file=sys.stderr)
        return 1
    if not options.check_only and not is_simulator():
        measure(options.megabytes)
        call_cost()
    return 0


if __name__ == "__main__":
    sys.exit(main())
