"""`accuracy`, `bench` and `info`."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from typing import Any

import typer

from .printing import JsonOption, print_lines

# What the extras bring; the versions are looked up, never imported.
PACKAGES = (
    "numpy", "torch", "onnx", "onnxruntime", "onnxscript", "safetensors", "ml_dtypes", "numba",
    "typer", "rich",
)  # fmt: skip
PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def accuracy(context: typer.Context) -> None:
    """Measure every function's error against independent references (--help lists its options).

    Example: gelu-fast accuracy --markdown
    """
    from gelu_fast.accuracy.__main__ import main

    raise typer.Exit(main(context.args))


def bench(context: typer.Context) -> None:
    """Time GELU against the libraries that are installed, answers checked first (--help lists its options).

    Example: gelu-fast bench --plot throughput.png
    """
    from gelu_fast.bench import main

    raise typer.Exit(main(context.args))


def info(as_json: JsonOption = False) -> None:
    """Print versions, the instruction set in use and the number of threads.

    Example: gelu-fast info --json
    """
    import gelu_fast

    cpu = gelu_fast.cpu_info()
    found: dict[str, Any] = {
        "gelu_fast": gelu_fast.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "isa": cpu["isa"],
        "available": list(cpu["available"]),
        "threads": gelu_fast.get_num_threads(),
        "packages": {name: _version(name) for name in PACKAGES},
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    lines = [(name, str(found[name])) for name in ("gelu_fast", "python", "machine", "isa")]
    lines += [("available", ", ".join(found["available"])), ("threads", str(found["threads"]))]
    lines += [(name, version or "not installed") for name, version in found["packages"].items()]
    print_lines(lines)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(context_settings=PASS_ON)(accuracy)
    app.command(context_settings=PASS_ON)(bench)
    app.command()(info)
