"""Speed against other libraries: every answer is checked first, then the contenders take turns in one process.

``python -m gelu_fast.bench`` (``-h`` lists the options) runs from an installed package; `main` is the same from Python.
Importing this package imports nothing: the peers (torch, onnxruntime, JAX, SciPy, Numba) load when they are asked for,
and those that are not installed are named as absent in the output. Needs the ``bench`` extra,
and ``plot`` for ``--plot``.

| file | what |
|---|---|
| ``work.py`` | what is measured and the targets |
| ``data.py`` | inputs |
| ``check.py`` | float64 reference and what counts as right |
| ``contenders.py``, ``peers*.py`` | us, the copy and the others, bound to preallocated arrays |
| ``timing.py`` | turns, medians, spread |
| ``cells.py``, ``suites.py`` | one comparison; the lists of comparisons of the short and the full mode |
| ``report.py``, ``plot.py``, ``machine.py``, ``isa.py`` | tables and JSON; the plot; where it ran; ``--isa`` |
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark's command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; by default those of the process.

    Returns
    -------
    int
        0 done, whatever the speed; 1 where an answer of our own broke its bound (it is not timed then); 2 bad usage, or
        a package of the ``bench`` extra is missing; 130 interrupted.
    """
    from .command import run

    return run(arguments)
