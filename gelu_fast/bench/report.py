"""The tables and the JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from .cells import Cell
from .contenders import COPY, OUR_UFUNC, OURS
from .costs import Pair, within_target
from .data import NORMAL
from .isa import LIMITS, UNLIMITED, limited_to
from .suites import Results
from .work import COLUMNS, COPY_TARGETS, DATA_FLOOR, DATA_TARGETS, EXACT, FRONT_DOOR_NS, MIDDLE, TARGETS

# CPUs that others may take on average before the report warns.
_QUIET = 0.1


def targets(found: Results) -> list[dict[str, Any]]:
    """Measured against wanted, one entry per target.

    Returns
    -------
    list of dict
        work, size, threads, data, kind ("best peer" or "copy"), against, measured, ufunc (the same for the bare
        ufunc), target, wrong, passed. Without a peer to measure against, measured and passed are None; where our
        answer is wrong, passed is False.
    """
    listed = []
    for cell in found.cells:
        if cell.column in COLUMNS and cell.work in TARGETS:
            listed.append(_target(cell, "best peer", cell.ratio, TARGETS[cell.work][COLUMNS.index(cell.column)]))
            if cell.column == COLUMNS[-1] and cell.work in COPY_TARGETS:
                listed.append(_target(cell, "copy", cell.copy_share, COPY_TARGETS[cell.work]))
    for cell in found.data_cells:
        if cell.work == EXACT and cell.column == MIDDLE and cell.data != NORMAL:
            listed.append(_target(cell, "best peer", cell.ratio, DATA_TARGETS.get(cell.data, DATA_FLOOR)))
    return listed


def _target(cell: Cell, kind: str, measured: float | None, target: float) -> dict[str, Any]:
    best = cell.best_peer
    limit, bare = cell.nanoseconds(COPY), cell.nanoseconds(OUR_UFUNC)
    ufunc = cell.ufunc_ratio if kind == "best peer" else limit / bare if limit and bare else None
    return {
        "work": cell.work.name, "size": cell.column.size, "threads": cell.column.threads, "data": cell.data,
        "kind": kind, "against": COPY if kind == "copy" else best.name if best else None,
        "measured": measured, "ufunc": ufunc, "target": target, "wrong": bool(cell.wrong),
        "passed": False if cell.wrong else None if measured is None else measured >= target,
    }  # fmt: skip


def to_dict(found: Results) -> dict[str, Any]:
    """Everything, ready for JSON; times in nanoseconds."""
    return {
        "schema": 1, "mode": found.mode, "machine": found.machine, "absent": found.absent,
        "compilers_left_out": found.left_out, "targets": targets(found),
        "cells": [c.to_dict() for c in found.cells],
        "data": [c.to_dict() for c in found.data_cells],
        "sweep": [c.to_dict() for c in found.sweep],
        "front_door": [
            p.to_dict() | {"target_ns": FRONT_DOOR_NS, "passed": within_target(p)} for p in found.front_door
        ],
        "allocation": [p.to_dict() for p in found.allocation],
        "layouts": [p.to_dict() for p in found.layouts],
        "wrong": found.wrong,
        "seconds": found.seconds,
    }  # fmt: skip


def to_json(found: Results) -> str:
    """`to_dict` as a file's text."""
    return json.dumps(to_dict(found), indent=1) + "\n"


def show(found: Results, console: Console) -> None:
    """Print all tables, the details first, so that the targets stand at the end."""
    _heading(found, console)
    console.print(_details("Every contender", found.cells))
    console.print(_details("Every input", found.data_cells))
    console.print(_front_door(found.front_door))
    console.print(_pairs("Allocating the result, exact form", "without out=", "with out=", found.allocation))
    console.print(_pairs("Views, exact form", "view", "one block", found.layouts))
    _footnotes(found, console)
    console.print(_targets(found))
    met = [t["passed"] for t in targets(found) if t["passed"] is not None]
    console.print(f"{sum(met)} of {len(met)} targets met; {found.seconds:.0f} s in {found.mode} mode")


def _heading(found: Results, console: Console) -> None:
    m = found.machine
    caches = ", ".join(f"{k} {v}" for k, v in m["caches"].items())
    versions = ", ".join(f"{k} {v}" for k, v in m["versions"].items() if v)
    console.print(f"{m['cpu']}, {m['cpus']} CPUs, caches of one: {caches or 'unknown'}; {m['system']}")
    console.print(f"ISA {m['isa']} (torch: {m.get('torch_isa', 'absent')}); Python {m['python']}, {versions}")
    console.print(f"load {m['load']} at the start, {m['load_at_end']} at the end; settings {m['settings'] or 'none'}")
    if (m["cpus_taken_by_others"] or 0) > _QUIET:
        console.print(
            f"NOT QUIET: other processes took {m['cpus_taken_by_others']} CPUs on average; don't trust these figures, "
            "and least of all those on several threads.",
            style="red",
        )
    if any(limited_to(isa) for isa in LIMITS):
        console.print(f"Limited by --isa; {UNLIMITED}.")
    console.print("Times are medians of turns taken in alternation, ± is the interquartile range; every answer was")
    console.print("checked before it was timed; out= is preallocated on all sides. Above 1×, gelu_fast is faster.\n")


def _details(title: str, cells: Sequence[Cell]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("work", "elements, threads", "data", "contender"):
        table.add_column(name, no_wrap=True)
    for name in ("ns/call", "±", "Gelem/s", "GB/s", "gelu_fast is", "max error"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in cells:
        best, mine = cell.best_peer, cell.nanoseconds(OURS)
        head = (cell.work.name, cell.column.name, cell.data)
        for i, row in enumerate(cell.to_dict()["rows"]):
            labels = head if i == 0 else ("", "", "")
            error = _error(row)
            if "ns_per_call" not in row:
                table.add_row(*labels, row["name"], "", "", "", "", "WRONG", error, style="red")
                continue
            ratio = f"{row['ns_per_call'] / mine:.2f}×" if mine and row["name"] != OURS else ""
            table.add_row(
                *labels, row["name"], f"{row['ns_per_call']:,.0f}", f"{row['spread']:.0%}",
                f"{row['gelem_per_s']:.3f}", f"{row['gb_per_s']:.1f}", ratio, error,
                style="bold" if row["name"] == OURS else "cyan" if best and row["name"] == best.name else "",
            )  # fmt: skip
        table.add_section()
    return table


def _error(row: dict[str, Any]) -> str:
    if "max_abs_error" not in row:
        return ""
    return f"{row['max_ulp_error']:.2f} ULP" if row["name"].startswith(OURS) else f"{row['max_abs_error']:.1e}"


def _front_door(pairs: Sequence[Pair]) -> Table:
    table = Table(title="Front door against the bare ufunc, ns per call, one thread", title_justify="left")
    for name in ("call", "elements", "front door", "ufunc", "cost", f"target {FRONT_DOOR_NS:.0f}"):
        table.add_column(name, justify="left" if name == "call" else "right", no_wrap=True)
    for p in pairs:
        row = (p.name, f"{p.size:,}", f"{p.dear.median:,.0f}", f"{p.cheap.median:,.0f}", f"{p.cost:+,.0f}")
        table.add_row(*row, _verdict(within_target(p)))
    return table


def _pairs(title: str, dear: str, cheap: str, pairs: Sequence[Pair]) -> Table:
    table = Table(title=f"{title}: microseconds per call", title_justify="left")
    for name in ("", "elements", "threads", dear, cheap, "ratio"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for p in pairs:
        without, given = p.dear.median, p.cheap.median
        row = (p.name, f"{p.size:,}", str(p.threads), f"{without / 1e3:,.1f}", f"{given / 1e3:,.1f}")
        table.add_row(*row, f"{without / given:.2f}×")
    return table


def _targets(found: Results) -> Table:
    table = Table(title="Targets: ratio to the best peer of the same cell, N(0,1) unless said", title_justify="left")
    for name in ("work", "elements, threads", "data", "against", "measured", "ufunc", "target", ""):
        table.add_column(name, justify="right" if name in ("measured", "ufunc", "target") else "left", no_wrap=True)
    for t in targets(found):
        column = f"{t['size']:,}, {t['threads']}"
        measured, ufunc = ("–" if v is None else f"{v:.2f}×" for v in (t["measured"], t["ufunc"]))
        verdict = "[red]WRONG[/red]" if t["wrong"] else "no peer" if t["passed"] is None else _verdict(t["passed"])
        wins = " (peer wins)" if t["measured"] is not None and t["measured"] < 1 and t["kind"] != "copy" else ""
        row = (t["work"], column, t["data"], t["against"] or "–", measured, ufunc, f"≥ {t['target']}")
        table.add_row(*row, verdict + wins)
    return table


def _verdict(passed: bool) -> str:
    return "[green]pass[/green]" if passed else "[red]miss[/red]"


def _footnotes(found: Results, console: Console) -> None:
    for name, reason in found.absent.items():
        console.print(f"absent: {name}: {reason}", markup=False)
    if found.left_out:
        console.print(f"torch.compile is left out of the short mode for: {'; '.join(found.left_out)}")
    seen: dict[str, list[str]] = {}
    for cell in (*found.cells, *found.data_cells, *found.sweep):
        for peer, reason in cell.notes.items():
            works = seen.setdefault(f"{peer}: {reason}", [])
            if cell.work.name not in works:
                works.append(cell.work.name)
        if cell.threads_used != cell.column.threads and cell.column.size >= MIDDLE.size:
            seen[f"gelu_fast could use {cell.threads_used} of {cell.column.threads} threads"] = [cell.column.name]
    for reason, where in seen.items():
        console.print(f"no row: {reason} ({'; '.join(where)})", markup=False)
