"""Compiled kernels on disk, where a directory can be written; plain JIT where none can.

Numba's own file cache, with four things added: the key is a fingerprint of everything a kernel is made from (Numba
looks at one file's time stamp, and at closures, which differ from process to process here); data carry a digest, so
that a damaged file is a miss and not a crash; whatever else goes wrong with a file is a miss too; and a file that can't
be written turns the cache off.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
from numba.core import caching

from gelu_fast import coefficients, kernel_files


@cache
def fingerprint() -> str:
    """Of the formulas, the coefficients and LLVM; Numba's own version is in every index already."""
    files = [*sorted(Path(__file__).parent.glob("*.py")), Path(coefficients.__file__)]
    return kernel_files.fingerprint(files, llvmlite.__version__)


class _Files(kernel_files.DigestedFiles, caching.IndexDataCacheFile):  # type: ignore[misc]
    pass


class KernelCache(kernel_files.TolerantCache, caching.FunctionCache):  # type: ignore[misc]
    """One kernel's cache, under a name of our own."""

    def __init__(self, py_func: Any, name: str) -> None:
        super().__init__(py_func)
        base = f"{name}-{self._impl.filename_base}"
        self._cache_file = _Files(self._cache_path, base, fingerprint())


def keep(dispatcher: Any, name: str) -> Any:
    """Give a dispatcher a cache, if there is a place for one."""
    # RuntimeError: nowhere to write; anything else: another Numba than this was written for.
    with contextlib.suppress(Exception):
        dispatcher._cache = KernelCache(dispatcher.py_func, name)
    return dispatcher
