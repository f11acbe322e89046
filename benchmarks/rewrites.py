"""What `rewrite` makes of models that others exported: operators, latency and answers, before and after.

    python benchmarks/rewrites.py [--only TEXT] [--small] [--threads N]

Each model is rewritten to native, fusable and contrib; the form that runs fastest is shown. The answers are compared
first (`rewrite` does), then all take turns in one process; medians in microseconds. Exit code 1 if an answer differs or
a GELU is missed. The models are those of tests/models_of_others.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import models_of_others as others

from gelu_fast.export import inspect
from gelu_fast.export.agreement import inputs_for
from gelu_fast.export.inspection import FUSED
from gelu_fast.export.rewrite import rewrite_with_report

ROUNDS, TURN, BATCH = 25, 4e-3, 64
_PART = {*FUSED, "Erf", "Tanh", "Sigmoid", "Div", "Mul", "Add", "Pow", "Exp", "Cast"}


def session(model: onnx.ModelProto, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def operators(model: onnx.ModelProto) -> str:
    """What onnxruntime ends with, of the operators that a GELU may consist of."""
    found = Counter(node.op_type for node in others.optimised(model, "ORT_ENABLE_ALL").graph.node)
    parts = [f"{count} {name}" for name, count in found.items() if name in _PART]
    return f"{sum(found.values())}: {', '.join(parts)}"


def timed(sessions: list[Any], inputs: dict[str, Any]) -> list[float]:
    """Median microseconds of a call, of each session; they take turns."""
    samples: list[list[float]] = [[] for _ in sessions]
    calls = []
    for each in sessions:
        each.run(None, inputs)
        start = time.perf_counter()
        each.run(None, inputs)
        calls.append(max(1, int(TURN / (time.perf_counter() - start))))
    for number in range(ROUNDS):
        order = range(len(sessions)) if number % 2 else reversed(range(len(sessions)))
        for index in order:
            start = time.perf_counter()
            for _ in range(calls[index]):
                sessions[index].run(None, inputs)
            samples[index].append((time.perf_counter() - start) / calls[index] * 1e6)
    return [statistics.median(each) for each in samples]


def models(small: bool) -> list[others.Other]:
    width = (8, 16) if small else (256, 1024)
    found = [
        o
        for o in others.blocks(width)
        if o.exporter in ("legacy 14", "legacy 17", "dynamo 18", "dynamo 20", "dynamo 23")
    ]
    size = {"width": 32} if small else {"width": 256, "tokens": 64}
    found += [
        o for o in others.transformers(**size) if o.exporter in ("legacy 14", "legacy 17", "dynamo 18", "dynamo 20")
    ]
    found += [o for backend in ("torch", "tensorflow") for o in others.keras(backend, width)]
    found += others.as_functions()
    saved = [
        o for o in found if o.name.startswith(("HF BERT", "HF GPT-2", "HF CLIP text")) and o.exporter == "legacy 17"
    ]
    return found + others.through_onnxruntime(saved)


def row(other: others.Other, threads: int) -> tuple[list[str], bool]:
    model = other.make()
    opset = next(e.version for e in model.opset_import if e.domain == "")
    sites = inspect(model)
    formulas = tuple(site.formula for site in sites)
    head = [other.name, other.exporter, str(opset), f"{len(sites)} {' '.join(sorted(set(formulas)))}"]
    if formulas != other.formulas:
        return [*head, f"expected {other.formulas}", "", "", "", "", ""], False
    if not sites:
        return [*head, "", "", "", "", "", ""], True
    repaired = any(node.op_type == "Erfc" for node in model.graph.node)
    reasons, made = [], {}
    for form in ("fusable", "contrib") if "quick" in formulas else ("native", "fusable", "contrib"):
        try:
            made[form] = rewrite_with_report(model, form)
        except ValueError as error:
            reasons.append(str(error))
    if not made:
        return [*head, "; ".join(reasons), "", "", "", "", ""], False
    first = [] if repaired else [model]
    sessions = [session(m, threads) for m in (*first, *(done.model for done in made.values()))]
    took = timed(sessions, inputs_for(model, BATCH))
    news = dict(zip(made, took[len(first) :], strict=True))
    form = min(news, key=lambda name: news[name])
    done, took = made[form], [*took[: len(first)], news[form]]
    assert done.agreement is not None
    before = "not loaded" if repaired else operators(model)
    old = "" if repaired else f"{took[0]:,.0f}"
    gain = "" if repaired else f"{took[0] / took[-1]:.2f}×"
    off = f"{done.agreement.max_abs:.1e}" if done.agreement.max_abs is not None else "?"
    return [*head, f"{form} {done.new_opset}", before, operators(done.model), old, f"{took[-1]:,.0f}", gain, off], True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name or exporter has this text")
    parser.add_argument("--small", action="store_true", help="tiny models: the table's shape, no useful times")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    table = Table(
        title=f"onnxruntime {onnxruntime.__version__}, {args.threads} threads on {os.cpu_count()} CPUs, batch {BATCH}"
    )
    names = (
        "model",
        "exporter",
        "opset",
        "found",
        "best form",
        "operators before",
        "after",
        "µs before",
        "after",
        "gain",
    )
    for name in (*names, "gain", "max difference"):
        table.add_column(name)
    failed = 0
    for other in models(args.small):
        if args.only not in str(other):
            continue
        cells, good = row(other, args.threads)
        failed += not good
        table.add_row(*cells)
        print(".", end="", file=sys.stderr, flush=True)
    Console(width=220).print(table)
    print("operators: how many onnxruntime ends with, and of those the ones that a GELU may consist of.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
