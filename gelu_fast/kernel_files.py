"""What Numba's file cache lacks for kernels made by closures; for its CPU's (jit/caching.py) and its CUDA's classes.

Mixed in before Numba's own class. Nothing here imports Numba.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def fingerprint(files: Iterable[Path], *versions: str) -> str:
    """Of files and versions: what a kernel is made from, in place of one file's time stamp."""
    found = hashlib.sha256(" ".join(versions).encode())
    for path in files:
        found.update(path.read_bytes())
    return found.hexdigest()


class DigestedFiles:
    """Before an IndexDataCacheFile: data carry a digest, so that a damaged file is a miss and not a crash."""

    def save(self, key: Any, data: Any) -> None:
        try:
            self._load_index()  # type: ignore[attr-defined]
        except Exception:  # damaged
            self.flush()  # type: ignore[attr-defined]
        super().save(key, data)  # type: ignore[misc]

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)  # type: ignore[attr-defined]
        with self._open_for_write(self._data_path(name)) as file:  # type: ignore[attr-defined]
            file.write(hashlib.sha256(content).digest() + content)

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()  # type: ignore[attr-defined]
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            return None
        return pickle.loads(content[32:])


class TolerantCache:
    """Before a Cache: whatever goes wrong with a file is a miss, and one that can't be written turns the cache off."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[misc]
        except Exception:  # truncated, of another user, of another format: compile
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)  # type: ignore[misc]
        except Exception:  # no longer writable, full, a file of the same name in the way
            self.disable()  # type: ignore[attr-defined]

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        # Numba's has the closure too, which holds compiled functions and differs from process to process.
        return sig, codegen.magic_tuple()
