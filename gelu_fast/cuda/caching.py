"""Compiled CUDA kernels on disk, where a directory can be written; compiled anew in every process where none can.

numba-cuda's own file cache as kernel_files.py mends it: as it is, ``cache=True`` takes these closures and never finds
them again. The key has the compute capability and CUDA's version; the data PTX and the device's code.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import Any

import numba_cuda
from numba.cuda import dispatcher
from numba.cuda.core import caching

from gelu_fast import coefficients, kernel_files


@cache
def fingerprint() -> str:
    """Of the kernels, the formulas, the coefficients and numba-cuda."""
    folder = Path(__file__).parent
    files = [*sorted(folder.glob("*.py")), *sorted((folder.parent / "jit").glob("*.py")), Path(coefficients.__file__)]
    return kernel_files.fingerprint(files, numba_cuda.__version__)


class _Files(kernel_files.DigestedFiles, caching.IndexDataCacheFile):  # type: ignore[misc]
    pass


class KernelCache(kernel_files.TolerantCache, dispatcher.CUDACache):  # type: ignore[misc]
    """One kernel's cache."""

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, fingerprint())


def keep(made: Any) -> Any:
    """Give a dispatcher a cache, if there is a place for one."""
    # RuntimeError: nowhere to write; anything else: another numba-cuda than this was written for.
    with contextlib.suppress(Exception):
        made._cache = KernelCache(made.py_func)
    return made
