"""`quantize`: ONNX models in fewer bits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .printing import JsonOption, OverwriteOption, complain, print_report, working


def quantize(
    model: Annotated[Path, typer.Argument(help="The float32 .onnx file.", show_default=False)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The .onnx file to write.")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="dynamic, dynamic-per-channel, static, static-per-channel, float16 or int4."),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Print a table of all methods; write nothing.")] = False,
    calibration: Annotated[
        Path | None, typer.Option(help="An .npz or .npy of inputs: ranges for static; errors are measured on it.")
    ] = None,
    batches: Annotated[str | None, typer.Option(help="Rows to time with --compare, by commas; 1,8,128.")] = None,
    target: Annotated[str | None, typer.Option(help="For instance 'onnxruntime>=1.17'.")] = None,
    untie: Annotated[bool, typer.Option("--untie", help="Store a shared weight once for each use if need be.")] = False,
    reduce_range: Annotated[
        bool, typer.Option("--reduce-range", help="int8 weights on 7 bits, for x86 without VNNI.")
    ] = False,
    half_io: Annotated[bool, typer.Option("--float16-io", help="float16: inputs and outputs too.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the random inputs.")] = 0,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a model in fewer bits by onnxruntime's tools, and measure size and error.

    Example: gelu-fast quantize block.onnx -o block-int8.onnx --method dynamic
    """
    from gelu_fast.export.quantize import quantize as write
    from gelu_fast.export.quantize_compare import compare_methods
    from gelu_fast.export.quantize_report import QuantizationError

    if compare:
        if output is not None or method is not None:
            raise ValueError("--compare runs every method and writes nothing; expected neither --output nor --method")
        try:
            rows = [int(part) for part in (batches or "1,8,128").split(",")]
        except ValueError as error:
            raise ValueError(f"--batches: expected numbers by commas, got {batches!r}") from error
        with working("quantising by every method, and running the results", as_json):
            found = compare_methods(model, calibration=calibration, batches=rows, target=target, untie=untie,
                                    reduce_range=reduce_range, seed=seed)  # fmt: skip
        typer.echo(found.to_json() if as_json else str(found))
        return
    if batches is not None:
        raise ValueError("--batches belongs to --compare")
    if half_io and method != "float16":
        raise ValueError(f"--float16-io belongs to --method float16, got {method}")
    if output is None or method is None:
        raise ValueError("expected --output FILE and --method METHOD, or --compare")
    calibrates = method.startswith("static")  # with a bar of its own
    try:
        with working("quantising, and running both models", as_json or calibrates):
            report = write(model, output, method=method, calibration=calibration, target=target, untie=untie,
                           reduce_range=reduce_range, keep_io_types=not half_io, overwrite=overwrite, seed=seed,
                           progress=calibrates and sys.stderr.isatty() and not as_json)  # fmt: skip
    except QuantizationError as error:
        print_report(error.report, as_json)
        complain(str(error))
        raise typer.Exit(1) from error
    print_report(report, as_json)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(quantize)
