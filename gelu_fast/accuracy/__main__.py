"""The command `python -m gelu_fast.accuracy`, also `gelu-fast accuracy`: exit code 1 where a bound is broken."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NEEDED = ("mpmath", "rich", "scipy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        0 every bound holds, 1 one is broken, 2 bad usage or a package is missing, 130 interrupted.
    """
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    if options.workers is not None and not options.exhaustive:
        print("gelu-fast accuracy: --workers belongs to --exhaustive", file=sys.stderr)
        return 2
    missing = [name for name in (*NEEDED, *(["matplotlib"] if options.plots else []))
               if importlib.util.find_spec(name) is None]  # fmt: skip
    if missing:
        extra = "accuracy,plot" if options.plots else "accuracy"
        print(f"gelu-fast accuracy: needs {', '.join(missing)}: pip install 'gelu-fast[{extra}]'", file=sys.stderr)
        return 2
    try:
        return (_exhaustive if options.exhaustive else _plots if options.plots else _sample)(options)
    except OSError as error:
        print(f"gelu-fast accuracy: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        rest = "the same command goes on from what it has saved" if options.exhaustive else "nothing was written"
        print(f"gelu-fast accuracy: interrupted; {rest}", file=sys.stderr)
        if options.exhaustive:
            with contextlib.suppress(OSError):  # something is in it
                options.output.rmdir()
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gelu-fast accuracy", description="Measure every function's error.",
        epilog="example: gelu-fast accuracy --markdown",
    )
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group()
    help_full = "12 million float64 and 67 million float32 inputs per function"
    what.add_argument("--full", action="store_true", help=help_full)
    help_all = "all 2^32 float32 inputs; 'all' for all nine; goes on where it was interrupted"
    what.add_argument("--exhaustive", nargs="+", metavar="FUNCTION", help=help_all)
    add("--output", type=Path, default=Path("accuracy-results"), help="where --exhaustive puts its JSON")
    add("--workers", type=int, help="processes of --exhaustive; by default one per CPU")
    help_plot = "draw error against x, peers beside ours"
    what.add_argument("--plot", "--plots", dest="plots", type=Path, metavar="DIRECTORY", help=help_plot)
    add("--overwrite", action="store_true", help="replace the files that --plot and --exhaustive write")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON and nothing else")
    shape.add_argument("--markdown", action="store_true", help="print the README's table and nothing else")
    return parser


def _sample(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import Progress

    from gelu_fast.progress import console

    from .measure import Row, measure_all
    from .report import markdown, table

    quiet = options.json or options.markdown
    with Progress(console=console(quiet), transient=True) as progress:
        task = progress.add_task("measuring", total=None)

        def show(row: Row, total: int) -> None:
            progress.update(task, total=total, advance=1, description=f"{row.function} {row.dtype}")

        rows = measure_all(options.full, show)
    passed = all(row.passed for row in rows)
    if options.json:
        print(json.dumps({"passed": passed, "rows": [row.to_json() for row in rows]}, indent=1))
    elif options.markdown:
        print(markdown(rows))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(table(rows))
    return 0 if passed else 1


def _plots(options: argparse.Namespace) -> int:
    from rich.progress import Progress

    from gelu_fast.progress import console

    from .plots import draw_all

    with Progress(console=console(), transient=True) as progress:
        task = progress.add_task("drawing", total=None, completed=-1)
        written = draw_all(
            options.plots, options.overwrite,
            lambda name, total: progress.update(task, description=name, total=total, advance=1),
        )  # fmt: skip
    print(*written, sep="\n")
    return 0


def _exhaustive(options: argparse.Namespace) -> int:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from gelu_fast.bounds import ULP
    from gelu_fast.output_files import check_file
    from gelu_fast.progress import console

    from .exhaustive import UNITS, finished, sweep_all
    from .functions import FUNCTIONS

    names = list(FUNCTIONS) if options.exhaustive == ["all"] else options.exhaustive
    unknown = [name for name in names if name not in FUNCTIONS]
    if unknown or (options.workers is not None and options.workers < 1):
        known = f"known are all, {', '.join(FUNCTIONS)}"
        wrong = f"unknown: {', '.join(unknown)}; {known}" if unknown else "--workers: expected at least 1"
        print(f"gelu-fast accuracy: {wrong}", file=sys.stderr)
        return 2
    for name in names:
        if finished(FUNCTIONS[name], options.output) is None:
            check_file(options.output / f"{name}.json", "--output", options.overwrite)
    results: list[dict[str, Any]] = []
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        TextColumn("max {task.fields[ulp]:.3f} ULP"),
    )  # fmt: skip
    with Progress(*columns, console=console(options.json)) as progress:
        for name in names:
            task = progress.add_task(name, total=UNITS, ulp=0.0)
            found = sweep_all(
                FUNCTIONS[name], options.output, options.workers,
                lambda done, ulp, task=task: progress.update(task, completed=done, ulp=ulp),  # type: ignore[misc]
            )  # fmt: skip
            progress.update(task, completed=UNITS)
            found["bound"] = ULP[FUNCTIONS[name].kind, "float32"]
            found["max_ulp"] = max(isa["max_ulp"] for isa in found["isa"].values())
            results.append(found)
    passed = all(found["max_ulp"] <= found["bound"] for found in results)
    if options.json:
        print(json.dumps({"passed": passed, "results": results}, indent=1))
        return 0 if passed else 1
    for found in results:
        verdict = "pass" if found["max_ulp"] <= found["bound"] else "FAIL"
        wall, bound = found["wall_s"], found["bound"]
        print(f"{found['function']}: 2^32 inputs in {wall:.0f} s; stated ≤ {bound:g} ULP: {verdict}")
        for isa, tally in found["isa"].items():
            worst = ", ".join(f"{w['ulp']:.3f} at {w['x']:.9g} ({where})" for where, w in tally["worst"].items())
            print(f"  {isa}: {worst}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
