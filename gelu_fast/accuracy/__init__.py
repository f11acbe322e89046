"""The error of every function, measured against references that share nothing with the kernels.

`python -m gelu_fast.accuracy` prints the table; `measure_all` and `sweep_all` give it to a program. Needs the extra
``accuracy`` (mpmath, scipy, rich), and ``plot`` (matplotlib) for the plots. In order of trust: exact.py is mpmath;
oracle.py and oracle64.py are vectorised and shown good by it (tests/test_oracle.py); sweep.py and exhaustive.py
compare the kernels with those; measure.py re-checks the worst point of each by mpmath again.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["measure_all", "sweep_all"]

# The parts need packages that a bare install lacks.
_HOME = {"measure_all": ".measure", "sweep_all": ".exhaustive"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
