"""`inspect` and `rewrite`: ONNX models that others made."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ..forms import shown
from .printing import JsonOption, OverwriteOption, print_lines, print_table, working

ModelArgument = Annotated[Path, typer.Argument(help="The .onnx file.", show_default=False)]


def inspect(
    model: ModelArgument,
    target: Annotated[str | None, typer.Option(help="The runtime that `fused` is about.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List every GELU of an ONNX file: where it is, which formula it computes, what the runtime makes of it.

    Example: gelu-fast inspect bert.onnx
    """
    from gelu_fast.export import inspect as look

    with working("looking for GELU", as_json):
        sites = look(model, target=target)
    if as_json:
        typer.echo(json.dumps([asdict(site) for site in sites], indent=2, ensure_ascii=False))
        return
    if not sites:
        typer.echo("no GELU in any spelling")
        return
    fused = {True: "yes", False: "no", None: "?"}
    rows = [
        (site.output, site.scope, shown(site.formula), site.dtype or "?", site.spelling, fused[site.fused_on_target],
         "can't be loaded" if site.runs is None else " ".join(site.runs), "; ".join(site.remarks))
        for site in sites
    ]  # fmt: skip
    print_table(("output", "scope", "formula", "dtype", "spelling", "fused", "runs as", "remarks"), rows)


def rewrite(
    model: ModelArgument,
    form: Annotated[str, typer.Option(help="native, fusable, contrib, function or primitive.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The .onnx file to write.")] = None,
    opset: Annotated[int | None, typer.Option(help="Of the result; by default the model's, raised if need be.")] = None,
    approximate: Annotated[str | None, typer.Option(help="Change every GELU's formula to none, tanh or quick.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List nodes removed and added; write nothing.")] = False,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Don't run and compare the two models.")] = False,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write every GELU of an ONNX file in another form, and check the result against the original.

    Example: gelu-fast rewrite bert.onnx --form fusable --opset 17 -o bert-17.onnx
    """
    from gelu_fast.export.rewrite import rewrite_file, rewrite_with_report

    if output is None and not dry_run:
        raise ValueError("expected --output FILE, or --dry-run")
    if output is not None and dry_run:
        raise ValueError("--dry-run writes nothing; expected no --output with it")
    with working("rewriting, and running both models", as_json):
        if dry_run or output is None:
            done = rewrite_with_report(model, form, opset=opset, approximate=approximate, verify=not no_verify)
        else:
            done = rewrite_file(
                model, output, form, opset=opset, approximate=approximate, verify=not no_verify, overwrite=overwrite
            )
    agreement = done.agreement
    found: dict[str, Any] = {
        "opset": done.opset,
        "new_opset": done.new_opset,
        "changes": [asdict(change) for change in done.changes],
        "agreement": None if agreement is None else asdict(agreement),
        "written": None if dry_run else str(output),
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    print_lines(_lines(found))


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("opset", f"{found['opset']} → {found['new_opset']}")]
    for change in found["changes"]:
        new = "" if change["formula"] == change["new_formula"] else f" → {shown(change['new_formula'])} (CHANGED)"
        lines.append(("GELU", f"{change['output']} in {change['scope']}: {shown(change['formula'])}{new}"))
        lines += [("  removed", text) for text in change["removed"]]
        lines += [("  added", text) for text in change["added"]]
        lines += [("  kept, used elsewhere", text) for text in change["kept"]]
    agreement = found["agreement"]
    if agreement is not None:
        lines.append(("largest difference", "nothing could run both" if agreement["max_abs"] is None
                      else f"{agreement['max_abs']:.3g}"))  # fmt: skip
        lines.append(("run by", "; ".join(agreement["by"]) or "nothing"))
        if agreement["reason"]:
            lines.append(("not run", agreement["reason"]))
    lines.append(("written", found["written"] or "nothing (dry run)"))
    return lines


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(inspect)
    app.command()(rewrite)
