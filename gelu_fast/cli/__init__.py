"""The commands of `gelu-fast`: export, verify, inspect, rewrite, quantize, compare, accuracy, bench, info.

Exit codes: 0 done, 1 a check failed, 2 bad usage or input, 130 interrupted by Ctrl-C. With ``--json``
standard output holds one JSON value and nothing else; errors go to standard error, one paragraph, with
``--debug`` the traceback too.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

from .. import interrupts
from . import blocks, compare, measure, models, quantized
from .parameters import in_options
from .printing import complain

# A file or an option that's wrong, or a size, is the caller's to mend: one paragraph, no traceback.
_FAULTS = (ValueError, TypeError, NotImplementedError, ImportError, OSError, MemoryError)
_PIPE_CLOSED = 141  # as a shell shows SIGPIPE


class _Commands(typer.core.TyperGroup):
    """Ctrl-C and closed pipes by the shell's exit codes, not typer's 1, which is that of a failed check."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().make_context(*arguments, **options)
        except BrokenPipeError:  # --help
            raise typer.Exit(_PIPE_CLOSED) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            with interrupts.remembered():
                try:
                    return super().invoke(ctx)
                except typer.Exit as stop:  # a command's own exit code
                    code = stop
        except KeyboardInterrupt:
            complain("interrupted")
            code = typer.Exit(130)
        except BrokenPipeError:
            code = typer.Exit(_PIPE_CLOSED)
        except _FAULTS as error:
            if _debug:
                traceback.print_exc()
            complain(in_options(ctx.invoked_subcommand, str(error) or type(error).__name__))
            code = typer.Exit(2)
        raise code


app = typer.Typer(
    cls=_Commands,
    name="gelu-fast",
    help="The fastest and most accurate GELU, and the kit that puts it into ONNX models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # an error in one paragraph and help without boxes, in pipes and narrow windows too
)
_debug = False


def _version(wanted: bool) -> None:
    if wanted:
        from gelu_fast import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error too.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """The fastest and most accurate GELU, and the kit that puts it into ONNX models."""
    global _debug
    _debug = debug


for part in (blocks, models, quantized, compare, measure):
    part.add_to(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; by default those of the process.
    """
    try:
        app(args=None if arguments is None else list(arguments), prog_name="gelu-fast")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it ends
        code = code or _PIPE_CLOSED
    except OSError as error:
        complain(f"standard output: {error}")
        code = 2
    return code
