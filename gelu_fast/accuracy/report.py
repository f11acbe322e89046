"""Rows as tables: for a terminal, and as Markdown for the README."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from .measure import Row

DTYPES = ("float32", "float64", "float16", "bfloat16")


def table(rows: Sequence[Row]) -> Table:
    """One line per function and dtype."""
    out = Table(title="Error of every function against mpmath", title_style="bold", header_style="bold")
    for name, justify in (
        ("function", "left"), ("dtype", "left"), ("worst", "right"), ("stated", "right"), ("at", "left"),
        ("ISA", "left"), ("inputs", "right"), ("", "left"),
    ):  # fmt: skip
        out.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        result = "[green]pass[/green]" if row.passed else "[bold red]FAIL[/bold red]"
        out.add_row(row.function, row.dtype, figure(row), stated(row), place(row), row.isa, f"{row.inputs:,}", result)
    return out


def markdown(rows: Sequence[Row]) -> str:
    """One line per function, a column per dtype: the table in README.md."""
    names = list(dict.fromkeys(row.function for row in rows))
    cells = {(row.function, row.dtype): row for row in rows}
    lines = ["| function | float32, ULP | float64, ULP | float16, misrounded | bfloat16, misrounded |"]
    lines.append("|---|---|---|---|---|")
    for name in names:
        found = (cells.get((name, dtype)) for dtype in DTYPES)
        lines.append(f"| `{name}` | " + " | ".join(_cell(row) if row else "" for row in found) + " |")
    return "\n".join(lines)


def figure(row: Row) -> str:
    return f"{row.error:g}" if row.dtype.endswith("16") else f"{row.error:.3f}"


def stated(row: Row) -> str:
    return f"≤ {row.bound:g} " + ("inputs" if row.dtype.endswith("16") else "ULP")


def place(row: Row) -> str:
    if row.x is None:
        return ""
    digits = 17 if row.dtype == "float64" else 9
    return f"x = {row.x:.{digits}g}" + ("" if row.dy is None else f", dy = {row.dy:.3g}")


def _cell(row: Row) -> str:
    text = figure(row) if row.passed else f"**{figure(row)}, over the bound**"
    return text if row.x is None or row.dtype.endswith("16") else f"{text} at {row.x:.6g}"
