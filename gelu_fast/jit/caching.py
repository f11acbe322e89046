"""Compiled kernels on disk, where a directory can be written; plain JIT where none can.

Numba's own file cache, with four things added: the key is a fingerprint of everything a kernel is made from (Numba
looks at one file's time stamp, and at closures, which differ from process to process here); data carry a digest, so
that a damaged file is a miss and not a crash; whatever else goes wrong with a file is a miss too; and a file that can't
be written turns the cache off.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
from numba.core import caching

from gelu_fast import coefficients


@cache
def fingerprint() -> str:
    """Of the formulas, the coefficients and LLVM; Numba's own version is in every index already."""
    found = hashlib.sha256(llvmlite.__version__.encode())
    for path in [*sorted(Path(__file__).parent.glob("*.py")), Path(coefficients.__file__)]:
        found.update(path.read_bytes())
    return found.hexdigest()


class _Files(caching.IndexDataCacheFile):  # type: ignore[misc]
    def save(self, key: Any, data: Any) -> None:
        try:
            self._load_index()
        except Exception:  # damaged
            self.flush()
        super().save(key, data)

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(content).digest() + content)

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        return pickle.loads(content[32:])


class KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """One kernel's cache, under a name of our own."""

    def __init__(self, py_func: Any, name: str) -> None:
        super().__init__(py_func)
        base = f"{name}-{self._impl.filename_base}"
        self._cache_file = _Files(self._cache_path, base, fingerprint())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # truncated, of another user, of another format: compile
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception:  # no longer writable, full, a file of the same name in the way
            self.disable()

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple()


def keep(dispatcher: Any, name: str) -> Any:
    """Give a dispatcher a cache, if there is a place for one."""
    # RuntimeError: nowhere to write; anything else: another Numba than this was written for.
    with contextlib.suppress(Exception):
        dispatcher._cache = KernelCache(dispatcher.py_func, name)
    return dispatcher
