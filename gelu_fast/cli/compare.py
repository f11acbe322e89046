"""`compare`: GELU beside the other activations."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..progress import console
from .printing import JsonOption, OverwriteOption, complain, print_lines, print_table, working

if TYPE_CHECKING:
    from gelu_fast.compare.training import Run

_QUICK_EPOCHS, _QUICK_SEEDS = 5, 1


def compare(
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output", "-o", help="Draw into this file (.png, .svg, .pdf) or folder (PNG and SVG); may be repeated."
        ),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Train a small classifier of digits with each, 2 and 12 layers deep.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of each training; 40 unless given.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Trainings of each; 3 unless given.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The same as --epochs 5 --seeds 1.")] = False,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare GELU with SiLU, ReLU, leaky ReLU, sigmoid and tanh: shape, gradients, cost measured now, training.

    Example: gelu-fast compare -o pictures

    Example: gelu-fast compare --train -o pictures
    """
    from gelu_fast import output_files, pictures

    if not train and (quick or epochs is not None or seeds is not None):
        raise ValueError("--epochs, --seeds and --quick belong to --train")
    # Before anything that takes long: may the pictures be written, and can they be drawn?
    goals = pictures.goals(output or [], "training" if train else "activations", overwrite)
    if goals:
        pictures.require("matplotlib.figure")
    if train:
        figure = _train(epochs or (_QUICK_EPOCHS if quick else None), seeds or (_QUICK_SEEDS if quick else None),
                        as_json)  # fmt: skip
    else:
        figure = _table(as_json)
    if goals:
        drawn = figure()
        files = {path: pictures.render(drawn, pictures.file_format(path, "--output")) for path in goals}
        output_files.write_all(files, overwrite)
    if not as_json:
        for path in goals:
            typer.echo(f"written: {path}")


def _table(as_json: bool) -> Callable[[], Any]:
    from gelu_fast.compare import ACTIVATIONS, cost, picture, table
    from gelu_fast.compare.properties import properties

    activations = list(ACTIVATIONS.values())
    found = [properties(a) for a in activations]
    try:
        with working("measuring the cost of each", as_json):
            spent = cost.costs(activations)
    except cost.WrongAnswerError as error:
        complain(str(error))
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps({"elements": cost.SIZE, "activations": table.to_dict(activations, found, spent)},
                              indent=1, ensure_ascii=False))  # fmt: skip
    else:
        print_table(*table.shapes(activations, found))
        typer.echo()
        print_table(*table.gradients(activations, found, spent))
        typer.echo()
        relu = spent[list(ACTIVATIONS).index("ReLU")]
        print_lines([
            ("exactly 0", "share of gradients on N(0,1) input, float32"),
            ("cost", f"time in relation to ReLU's ({relu.forward:.2f} and {relu.backward:.2f} ns an element), measured "
                     f"now: {cost.SIZE:,} float32, one thread, in turns, answers checked first"),
            ("", f"GELU by gelu_fast, the others in NumPy; spread up to {max(c.spread for c in spent):.0%}"),
        ])  # fmt: skip
    return picture.draw


def _train(epochs: int | None, seeds: int | None, as_json: bool) -> Callable[[], Any]:
    from gelu_fast.compare import curves, table, training

    epochs, seeds = epochs or training.EPOCHS, seeds or training.SEEDS
    runs = _run(epochs, seeds, quiet=as_json)
    if as_json:
        typer.echo(json.dumps({"epochs": epochs, "seeds": seeds, "runs": [_finite(run) for run in runs]}, indent=1))
    else:
        print_table(*table.trainings(runs))
    return lambda: curves.draw(runs)


def _run(epochs: int, seeds: int, quiet: bool) -> Sequence[Run]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from gelu_fast.compare import ACTIVATIONS, Activation, training

    columns = TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console(quiet), transient=True) as progress:
        task = progress.add_task("reading digits", total=len(training.DEPTHS) * len(ACTIVATIONS) * seeds * epochs)

        def show(activation: Activation, depth: int, seed: int) -> None:
            text = f"{activation.name}, {depth} hidden layers, seed {seed}"
            progress.update(task, advance=1, description=text)

        return training.train_all(epochs, seeds, training.DEPTHS, show=show)


def _finite(run: Run) -> dict[str, Any]:
    # JSON has no nan.
    found = run.to_dict()
    found["losses"] = [loss if abs(loss) < float("inf") else None for loss in found["losses"]]
    return found


def add_to(app: typer.Typer) -> None:
    """Register the command of this module."""
    app.command()(compare)
