"""Where the commands show how far they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console(quiet: bool = False) -> Console:
    """Of rich, on standard error; silent unless that is a terminal with a cursor.

    ``disable=True`` isn't enough: some releases end a `rich.progress.Progress` with an empty line all the same.
    """
    from rich.console import Console

    found = Console(stderr=True)
    found.quiet = quiet or not found.is_interactive
    return found
