"""The commands of `gelu-fast`: export, verify, accuracy, bench, info.

Exit codes: 0 done, 1 a check failed, 2 bad usage or input. With ``--json`` standard output holds one JSON
object and nothing else; errors go to standard error.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from gelu_fast.export.sources import Block

# What the extras bring; the versions are looked up, never imported.
PACKAGES = (
    "numpy", "torch", "onnx", "onnxruntime", "onnxscript", "safetensors", "ml_dtypes", "numba",
    "typer", "rich",
)  # fmt: skip

app = typer.Typer(
    name="gelu-fast",
    help="The fastest and most accurate GELU, and the kit that puts it into ONNX models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

WeightsOption = Annotated[
    Path | None, typer.Option(help="An .npz or .safetensors file with w1 b1 w2 b2, or fc1.weight … fc2.bias.")
]
InOption = Annotated[int | None, typer.Option("--in-features", help="Width of a random block.")]
HiddenOption = Annotated[int | None, typer.Option("--hidden-features", help="Hidden width of a random block.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of a random block.")]
FormulaOption = Annotated[str | None, typer.Option(help="none (exact) or tanh.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and nothing else.")]


@app.command()
def export(
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    weights: WeightsOption = None,
    in_features: InOption = None,
    hidden_features: HiddenOption = None,
    seed: SeedOption = 0,
    approximate: FormulaOption = None,
    opset: Annotated[int, typer.Option(help="ONNX opset; only 20 is served today.")] = 20,
    dims: Annotated[str, typer.Option(help="Names of the leading axes, by commas.")] = "batch",
    dtype: Annotated[str | None, typer.Option(help="Convert the weights first; only float32 today.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a feed-forward block as ONNX, run it in onnxruntime, and keep the file only if it agrees."""
    from gelu_fast.export import VerificationError, export_ffn

    source = _source(weights, in_features, hidden_features, seed)
    names = tuple(name.strip() for name in dims.split(","))
    target = f"opset {opset}"
    try:
        report = export_ffn(
            source,
            output,
            approximate=approximate,
            target=target,
            dims=names,
            dtype=dtype,
            overwrite=overwrite,
        )
    except VerificationError as error:
        _print_report(error.report, as_json)
        _complain(str(error))
        raise typer.Exit(1) from error
    _print_report(report, as_json)


@app.command()
def verify(
    model: Annotated[Path, typer.Argument(help="The .onnx file.", show_default=False)],
    weights: WeightsOption = None,
    in_features: InOption = None,
    hidden_features: HiddenOption = None,
    seed: SeedOption = 0,
    approximate: FormulaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run an ONNX file in onnxruntime and compare it with the block of the given weights."""
    from gelu_fast.export import verify as compare

    report = compare(model, _source(weights, in_features, hidden_features, seed), approximate=approximate)
    _print_report(report, as_json)
    if not report.passed:
        raise typer.Exit(1)


PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=PASS_ON)
def accuracy(context: typer.Context) -> None:
    """Measure every function's error against independent references (--help lists its options)."""
    from gelu_fast.accuracy.__main__ import main

    raise typer.Exit(main(context.args))


@app.command(context_settings=PASS_ON)
def bench(context: typer.Context) -> None:
    """Time GELU against the libraries that are installed, answers checked first (--help lists its options)."""
    from gelu_fast.bench import main

    raise typer.Exit(main(context.args))


@app.command()
def info(as_json: JsonOption = False) -> None:
    """Print versions, the instruction set in use and the number of threads."""
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
    _print_table(lines)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; by default those of the process.
    """
    # A file or an option that's wrong is the caller's to mend: one line, no traceback.
    return _guard(lambda: app(args=None if arguments is None else list(arguments), prog_name="gelu-fast"))


def _guard(command: Callable[[], Any]) -> int:
    try:
        command()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except (ValueError, TypeError, NotImplementedError, ImportError, OSError) as error:
        _complain(str(error))
        return 2
    return 0


def _source(weights: Path | None, in_features: int | None, hidden_features: int | None, seed: int) -> Path | Block:
    random = in_features is not None or hidden_features is not None
    if weights is not None and random:
        raise ValueError("--weights and --in-features/--hidden-features exclude each other")
    if weights is not None:
        return weights
    if in_features is None or hidden_features is None:
        raise ValueError("expected --weights FILE, or both --in-features N and --hidden-features N")
    from gelu_fast.export.sources import random_block

    return random_block(in_features, hidden_features, seed)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _print_report(report: Any, as_json: bool) -> None:
    if as_json:
        typer.echo(report.to_json())
    else:
        _print_table(report.rows())


def _print_table(lines: Sequence[tuple[str, str]]) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in lines:
        style = {"passed": "green", "FAILED": "red"}.get(text, "") if label == "result" else ""
        table.add_row(label, Text(text, style=style))  # Text: brackets in a path are not markup
    # Into a pipe nothing is folded, so that a digest or a path can be picked out by line.
    width = None if sys.stdout.isatty() else max(len(label) + len(text) for label, text in lines) + 24
    Console(width=width).print(table)


def _complain(message: str) -> None:
    print(f"gelu-fast: {message}", file=sys.stderr)
