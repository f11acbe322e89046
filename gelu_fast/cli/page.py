"""`gelu-fast export --page FOLDER`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gelu_fast.export import ExportReport


@contextmanager
def page_maker(
    folder: Path | None, onnxruntime_web: Path | None, overwrite: bool
) -> Iterator[Callable[[ExportReport, Any], None]]:
    """A function that makes the page of (report, source), or does nothing if there is no folder.

    The folder is checked and onnxruntime-web fetched first, so that nothing is exported for a page that can't be made.
    Everything is said on standard error.

    Parameters
    ----------
    folder : Path, optional
        ``--page``.
    onnxruntime_web : Path, optional
        ``--onnxruntime-web``: the npm package that is here already. By default npm is asked for it.
    overwrite : bool

    Raises
    ------
    ValueError, OSError
        As `gelu_fast.export.page.export_page` and `gelu_fast.cli.npm.onnxruntime_web` do.
    """
    if folder is None:
        if onnxruntime_web is not None:
            raise ValueError("--onnxruntime-web: expected --page FOLDER with it")
        yield lambda report, source: None
        return
    from gelu_fast.export.page import check_folder, export_page

    from . import npm

    check_folder(folder, overwrite)
    with npm.onnxruntime_web(_say) if onnxruntime_web is None else nullcontext(onnxruntime_web) as web:

        def make(report: ExportReport, source: Any) -> None:
            export_page(report, folder, onnxruntime_web=web, source=source, overwrite=overwrite)
            _say(f"the page: python -m http.server --directory {shlex.quote(str(folder))}, then open http://localhost:8000/")

        yield make


def _say(text: str) -> None:
    print(f"gelu-fast: {text}", file=sys.stderr)
