"""gelu_fast.cuda on a GPU: are the answers right, and how near to a device copy does it come? With torch beside it.

    python benchmarks/cuda.py [--megabytes 512] [--check-only]

Needs the `cuda` extra and a GPU, and says so where there is none (exit code 2); torch with CUDA is optional. GB/s count
every byte that must be read or written, once. Target: 0.9 of the copy for float32 and bfloat16.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# This file's own folder comes first in a script's path, and there it would pass for NVIDIA's package `cuda`.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

import numpy as np  # noqa: E402

import gelu_fast as gf  # noqa: E402
from gelu_fast.bounds import MISROUNDED, NEAR_ROOT  # noqa: E402

FORMS = ("none", "tanh", "quick")
# torch 2's `gelu` has no quick form.
DTYPES = ("float32", "bfloat16", "float16", "float64")
ROOTS = (-0.7517915, -0.7524614, -0.7511605, -2**0.5, 2**0.5, -1.4185, 1.4185, -1.40973, 1.40973)  # of the derivatives


def samples(n: int, seed: int = 0) -> Any:
    """float64: ordinary values, values near the roots, all magnitudes, and the specials."""
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal(n // 2) * 3, rng.uniform(-40, 40, n // 4),
             np.exp2(rng.uniform(-149, 127, n // 8)) * rng.choice([-1, 1], n // 8),
             rng.choice(ROOTS, n // 8) + rng.uniform(-0.02, 0.02, n // 8),
             [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45]]  # fmt: skip
    return np.concatenate(parts)


def check() -> bool:
    """Values on the GPU against the CPU's in float64, all inputs of the 16-bit types; prints what it finds."""
    from numba import cuda

    fine = True
    for function in ("gelu", "gelu_grad", "gelu_grad2"):
        ours, cpu = getattr(gf.cuda, function), getattr(gf, function)
        for form in FORMS:
            worst = []
            for dtype in ("float32", "float64"):
                x = samples(1 << 22 if dtype == "float32" else 1 << 20).astype(dtype)
                got = ours(cuda.to_device(x), form).copy_to_host().astype(np.float64)
                exact = cpu(x.astype(np.float64), form)
                with np.errstate(all="ignore"):
                    unit = np.spacing(np.abs(exact).astype(dtype)).astype(np.float64)
                    error = np.abs(got - exact)
                    ulp = np.where((got == exact) | (np.isnan(got) & np.isnan(exact)), 0, error / unit)
                away = np.min([np.abs(x - root) for root in ROOTS], axis=0) > NEAR_ROOT
                bound, absolute = (2.0, 2.0**-26) if dtype == "float32" else (4.0, 2.0**-53)  # float64: the CPU's too
                away |= (ulp <= bound) | (function == "gelu")
                near = float(np.max(np.where(away, 0, error)))
                top = float(np.nanmax(np.where(away, ulp, 0)))
                good = top <= bound and near <= absolute and np.array_equal(np.isnan(got), np.isnan(exact))
                good = good and np.array_equal(np.signbit(got[got == 0]), np.signbit(exact[got == 0]))
                fine &= good
                worst.append(f"{dtype} {top:.2f} ULP, {near:.1e} near a root{'' if good else ' WRONG'}")
            for dtype in ("float16", "bfloat16"):
                bits = np.arange(65536, dtype=np.uint16)
                x = bits.view(np.float16) if dtype == "float16" else bits
                wide = x.astype(np.float64) if dtype == "float16" else from_bfloat16(bits)
                got = ours(cuda.to_device(x), form).copy_to_host()
                exact = cpu(wide, form)
                with np.errstate(over="ignore"):
                    right = exact.astype(np.float16).view(np.uint16) if dtype == "float16" else to_bfloat16(exact)
                wrong = int(np.sum((got.view(np.uint16) != right) & ~np.isnan(wide)))
                good = wrong <= MISROUNDED[function, dtype]
                fine &= good
                worst.append(f"{dtype} {wrong} misrounded{'' if good else ' WRONG'}")
            print(f"{function:10} {form:5} {'; '.join(worst)}", flush=True)
    return fine


def from_bfloat16(bits: Any) -> Any:
    with np.errstate(invalid="ignore"):  # signalling nan
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def to_bfloat16(x: Any) -> Any:
    """float64 rounded to bfloat16 once, by way of float32 rounded to odd."""
    with np.errstate(all="ignore"):
        near = x.astype(np.float32)
    bits = near.view(np.uint32).copy()
    inexact = np.isfinite(x) & (near.astype(np.float64) != x) & (bits & 1 == 0)
    away = np.abs(near.astype(np.float64)) < np.abs(x)
    bits = np.where(inexact, np.where(away, bits + 1, bits - 1), bits).astype(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


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
        rows += [
            ("bias_gelu none", lambda x=x, b=bias, o=out: gf.cuda.bias_gelu(x, b, out=o), 2, added),
            ("geglu none", lambda x=whole, o=half: gf.cuda.geglu(x, out=o), 1.5, gated),
        ]
        for what, call, passes, peer in rows:
            speed = passes * total / seconds(call)
            line = f"{dtype:9} {what:22} {speed / 1e9:7.0f} {speed / peak:8.2f}"
            if peer is not None:
                theirs = passes * total / seconds(peer)
                line += f" {theirs / 1e9:7.0f} {speed / theirs:10.2f}"
            print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=512, help="size of an array")
    parser.add_argument("--check-only", action="store_true")
    options = parser.parse_args()
    try:
        from gelu_fast.cuda.driver import check as find

        cuda = find()
    except (ImportError, RuntimeError) as error:
        print(f"no GPU to measure: {error}", file=sys.stderr)
        return 2
    print(f"{cuda.get_current_device().name}; numba-cuda {__import__('numba_cuda').__version__}")
    if not check():
        print("wrong answers: nothing is timed", file=sys.stderr)
        return 1
    if not options.check_only:
        measure(options.megabytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
