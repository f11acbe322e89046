"""Tables on a terminal, plain lines in a pipe, complaints on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..progress import console

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and nothing else.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def print_report(report: Any, as_json: bool) -> None:
    """A report of the export kit."""
    if as_json:
        typer.echo(report.to_json())
    else:
        print_lines(report.rows())


def print_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Labels and texts."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in lines:
        style = {"passed": "green", "FAILED": "red"}.get(text, "") if label == "result" else ""
        table.add_row(label, Text(text, style=style))  # Text: brackets in a path are not markup
    _print(table, [label + text for label, text in lines])


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under heads."""
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    widest = ("".join(max(column, key=len) for column in zip(heads, *rows, strict=True)),)
    _print(table, widest)


def _print(table: Table, lines: Sequence[str]) -> None:
    if sys.stdout.isatty():
        Console().print(table)
        return
    # Into a pipe nothing is folded, so that a digest or a path can be picked out by line.
    console = Console(width=max(map(len, lines), default=0) + 24)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


@contextmanager
def working(text: str, quiet: bool = False) -> Iterator[None]:
    """What goes on and for how long, on standard error while it lasts, if that is a terminal."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    # Not more often: its thread runs beside what --timing measures.
    with Progress(*columns, console=console(quiet), transient=True, refresh_per_second=2) as progress:
        progress.add_task(text, total=None)
        yield


def complain(message: str) -> None:
    """One paragraph on standard error."""
    print(f"gelu-fast: {message}", file=sys.stderr)
