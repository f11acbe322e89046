"""The commands of `gelu-fast`: export, verify, inspect, rewrite, quantize, compare, accuracy, bench, info.

Exit codes: 0 done, 1 a check failed, 2 bad usage or input, 130 interrupted by Ctrl-C. With ``--json``
standard output holds one JSON object and nothing else; errors go to standard error, one paragraph, with
``--debug`` the traceback too.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
import typer.core

from .. import interrupts
from . import blocks, compare, measure, models, quantized
from .printing import complain


class _Commands(typer.core.TyperGroup):
    """Ctrl-C by the shell's exit code, not typer's 1, which is that of a failed check."""

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
        raise code


app = typer.Typer(
    cls=_Commands,
    name="gelu-fast",
    help="The fastest and most accurate GELU, and the kit that puts it into ONNX models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_debug = False


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error too.")] = False,
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
    return _guard(lambda: app(args=None if arguments is None else list(arguments), prog_name="gelu-fast"))


def _guard(command: Callable[[], Any]) -> int:
    # A file or an option that's wrong is the caller's to mend: one paragraph, no traceback.
    try:
        command()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except (ValueError, TypeError, NotImplementedError, ImportError, OSError) as error:
        if _debug:
            traceback.print_exc()
        complain(str(error))
        return 2
    return 0
