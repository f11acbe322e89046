"""`export` and `verify`: feed-forward blocks from weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .page import page_maker
from .printing import JsonOption, OverwriteOption, complain, print_report, working

if TYPE_CHECKING:
    from gelu_fast.export.blocks import Block

_MOST = 2**31 - 1  # what an ONNX file of a block could ever hold; above it NumPy's own errors say little
WeightsOption = Annotated[
    Path | None, typer.Option(help="An .npz or .safetensors file with w1 b1 w2 b2, or fc1.weight … fc2.bias.")
]
InOption = Annotated[int | None, typer.Option("--in-features", max=_MOST, help="Width of a random block.")]
HiddenOption = Annotated[
    int | None, typer.Option("--hidden-features", max=_MOST, help="Hidden width of a random block.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of a random block.")]
FormulaOption = Annotated[str | None, typer.Option(help="none (exact), tanh or quick.")]
TimingOption = Annotated[bool, typer.Option("--timing", help="Measure the latency at batch 1, 8 and 128.")]


def export(
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    weights: WeightsOption = None,
    in_features: InOption = None,
    hidden_features: HiddenOption = None,
    seed: SeedOption = 0,
    approximate: FormulaOption = None,
    target: Annotated[str | None, typer.Option(help="onnxruntime>=1.17, onnxruntime-web, opset 17, …")] = None,
    opset: Annotated[int | None, typer.Option(help="The same as --target 'opset N'.")] = None,
    form: Annotated[str, typer.Option(help="auto, native, fusable, contrib, function or primitive.")] = "auto",
    dims: Annotated[str, typer.Option(help="Names of the leading axes, by commas.")] = "batch",
    dtype: Annotated[
        str | None, typer.Option(help="Convert the weights first: float32, float64, float16 or bfloat16.")
    ] = None,
    external_data: Annotated[
        bool, typer.Option("--external-data", help="Weights in a file of their own; above 2 GiB they always are.")
    ] = False,
    allow_nonfinite: Annotated[bool, typer.Option("--allow-nonfinite", help="Take nan and inf in weights.")] = False,
    timing: TimingOption = False,
    page: Annotated[
        Path | None, typer.Option(help="Also make this folder: a page that runs the model in a browser.")
    ] = None,
    onnxruntime_web: Annotated[
        Path | None, typer.Option("--onnxruntime-web", help="The npm package, for --page; by default npm fetches it.")
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a feed-forward block as ONNX, run it in onnxruntime, and keep the file only if it agrees.

    Example: gelu-fast export --weights block.safetensors --target 'onnxruntime>=1.17' -o block.onnx
    """
    from gelu_fast.export import VerificationError, export_ffn
    from gelu_fast.export.weight_files import load_weights

    if opset is not None and target is not None:
        raise ValueError("--opset and --target exclude each other")
    if page is not None and target is None:
        target = "onnxruntime-web"
    source = _source(weights, in_features, hidden_features, seed)
    if page is not None and weights is not None:
        load_weights(weights)  # npm isn't asked for anything if they are no good
    try:
        with (
            page_maker(page, onnxruntime_web, overwrite) as make_page,
            working("exporting, and running it in onnxruntime", as_json),
        ):
            report = export_ffn(
                source,
                output,
                approximate=approximate,
                target=target if opset is None else f"opset {opset}",
                form=form,
                dims=tuple(name.strip() for name in dims.split(",")),
                dtype=dtype,
                external_data=external_data or "auto",
                allow_nonfinite=allow_nonfinite,
                timing=timing,
                overwrite=overwrite,
            )
            make_page(report, source)
    except VerificationError as error:
        print_report(error.report, as_json)
        complain(str(error))
        raise typer.Exit(1) from error
    print_report(report, as_json)


def verify(
    model: Annotated[Path, typer.Argument(help="The .onnx file.", show_default=False)],
    weights: WeightsOption = None,
    in_features: InOption = None,
    hidden_features: HiddenOption = None,
    seed: SeedOption = 0,
    approximate: FormulaOption = None,
    timing: TimingOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run an ONNX file in onnxruntime and compare it with the block of the given weights.

    Example: gelu-fast verify block.onnx --weights block.safetensors
    """
    from gelu_fast.export import verify as compare

    source = _source(weights, in_features, hidden_features, seed)
    with working("running it in onnxruntime, and the weights in float64", as_json):
        report = compare(model, source, approximate=approximate, timing=timing)
    print_report(report, as_json)
    if not report.passed:
        if weights is None:
            complain(f"compared with the random block of seed {seed}; --weights FILE compares with those of a file")
        raise typer.Exit(1)


def _source(weights: Path | None, in_features: int | None, hidden_features: int | None, seed: int) -> Path | Block:
    random = in_features is not None or hidden_features is not None
    if weights is not None and random:
        raise ValueError("--weights and --in-features/--hidden-features exclude each other")
    if weights is not None:
        return weights
    if in_features is None or hidden_features is None:
        raise ValueError("expected --weights FILE, or both --in-features N and --hidden-features N")
    from gelu_fast.export.blocks import random_block

    return random_block(in_features, hidden_features, seed)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(export)
    app.command()(verify)
