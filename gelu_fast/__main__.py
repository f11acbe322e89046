"""The console script `gelu-fast`, and ``python -m gelu_fast``."""

from __future__ import annotations

import importlib.util
import io
import os
import sys


def main() -> int:
    """Run the command line.

    Returns
    -------
    int
        0 done, 1 a check failed, 2 bad usage or input, 130 interrupted. Where typer or rich is missing, 2, and the
        extra that brings them is named.
    """
    missing = [name for name in ("typer", "rich") if importlib.util.find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        print(
            f"gelu-fast: the command line needs {' and '.join(missing)}, which {verb} not installed: "
            "pip install 'gelu-fast[cli]' (or 'gelu-fast[onnx]', to export too)",
            file=sys.stderr,
        )
        return 2
    # Closed ones; print would put an error on the other.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (for as long as the process lives)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    try:
        from gelu_fast.cli import run

        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a table has arrows, and not every terminal's encoding does
                stream.reconfigure(errors="replace")

        return run()
    except KeyboardInterrupt:  # while importing; afterwards the commands tell
        return 130


if __name__ == "__main__":
    sys.exit(main())
