"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import interrupts
from .isa import LIMITS, limited_to, run_limited

if TYPE_CHECKING:
    from .suites import Results


def run(arguments: Sequence[str] | None) -> int:
    """See `gelu_fast.bench.main`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = _parser().parse_args(given)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    for extra, needed in (("bench", ("scipy", "mpmath", "rich")), ("plot", ("matplotlib",) if options.plot else ())):
        missing = [name for name in needed if importlib.util.find_spec(name) is None]
        if missing:
            return _complain(f"{' and '.join(missing)} not installed: pip install 'gelu-fast[{extra}]'")
    if options.isa and not limited_to(options.isa):
        with interrupts.remembered():  # SIGTERM ends the child too
            return run_limited(options.isa, given)
    try:
        _check_files(options)
    except (OSError, ValueError) as error:
        return _complain(str(error))
    try:
        return _bench(options)
    except OSError as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        _complain("interrupted; nothing was written")
        return 130


def _check_files(options: argparse.Namespace) -> None:
    from ..output_files import check_file, check_parent
    from ..pictures import file_format

    wanted = {option: getattr(options, option) for option in ("json", "plot", "markdown") if getattr(options, option)}
    for option, path in wanted.items():
        check_parent(path, f"--{option}")
        check_file(path, f"--{option}", options.overwrite)
    if len({path.resolve() for path in wanted.values()}) < len(wanted):
        raise ValueError(f"{', '.join(f'--{option}' for option in wanted)}: expected different files")
    if options.plot:
        file_format(options.plot, "--plot")


def _bench(options: argparse.Namespace) -> int:
    from . import peers
    from .contenders import present
    from .suites import execute, plan

    mode = "full" if options.full else "short"
    here, absent = present(peers.roster())
    show = _progress(options.quiet)
    with interrupts.remembered() as check_interrupt:

        def step(line: str) -> None:
            check_interrupt()
            show(line)

        found = execute(plan(mode, bool(options.plot)), here, absent, step)
        check_interrupt()
    return publish(found, options.json, options.plot, options.markdown, options.overwrite)


def publish(
    found: Results, json: Path | None = None, picture: Path | None = None, markdown: Path | None = None,
    overwrite: bool = False,
) -> int:  # fmt: skip
    """Print the tables, write the files, all or none; the exit code."""
    from rich.console import Console

    from .. import pictures
    from ..output_files import write_all
    from . import plot, report
    from .markdown import render

    # Tables are not folded when they go into a file or a pipe.
    report.show(found, Console() if sys.stdout.isatty() else Console(width=170))
    files: dict[Path, bytes] = {}
    if json:
        files[json] = report.to_json(found).encode()
    if markdown:
        files[markdown] = render(report.to_dict(found)).encode()
    if picture:
        m = found.machine
        figure = plot.draw(found.sweep, f"{m['cpu']}, {m['cpus']} CPUs, ISA {m['isa']}")
        files[picture] = pictures.render(figure, pictures.file_format(picture, "--plot"))
    write_all(files, overwrite, "--json, --plot, --markdown")
    for line in found.wrong:
        _complain(f"WRONG: {line}")
    return 1 if found.wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gelu-fast bench",
        description="Check every answer, then time GELU against the libraries that are installed, side by side.",
        epilog="example: gelu-fast bench --plot throughput.png",
    )
    parser.add_argument("--full", action="store_true", help="all works, data and sizes; the default takes < 3 minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the short form of the tables")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw throughput against size (.png, .svg, .pdf)")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    parser.add_argument(
        "--isa",
        choices=sorted(LIMITS),
        help="keep everybody who can be to this instruction set (onnxruntime can't be)",
    )
    parser.add_argument("--quiet", action="store_true", help="don't tell on standard error how far it is")
    return parser


def _progress(quiet: bool) -> Callable[[str], None]:
    """A line at each step. No rich bar here: its thread would run beside what is timed."""
    if quiet:
        return lambda line: None
    in_place = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    before, after = ("\r\x1b[K", "") if in_place else ("", "\n")
    start = time.monotonic()
    return lambda line: print(
        f"{before}{time.monotonic() - start:4.0f} s  {line}", end=after, file=sys.stderr, flush=True
    )


def _complain(message: str) -> int:
    print(f"gelu-fast bench: {message}", file=sys.stderr)
    return 2
