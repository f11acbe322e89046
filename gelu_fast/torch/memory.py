"""Results in huge pages, as NumPy asks for its own.

torch returns large memory to the kernel when a tensor dies, so each new result is paged in anew: 4 KiB at a time that
takes longer than GELU itself (forward + backward of 50 MB took 2.8 times as long; `make bench-torch`).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import torch

_LARGE = 4 << 20  # bytes; NumPy's threshold
_PAGE = 4096
_HUGEPAGE = 14  # MADV_HUGEPAGE of linux/mman.h


def _find_madvise() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    madvise: Callable[..., int] | None = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is not None:
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]  # type: ignore[attr-defined]
    return madvise


_madvise = _find_madvise()


def in_huge_pages(out: torch.Tensor) -> torch.Tensor:
    """A tensor that nothing has been written to, itself; in huge pages if it's large and the kernel has them."""
    size = out.nbytes
    if size >= _LARGE and _madvise is not None and out.device.type == "cpu":
        start = -(-out.data_ptr() // _PAGE) * _PAGE
        # Advice: a kernel without huge pages refuses it, and nothing is lost.
        _madvise(start, (out.data_ptr() + size - start) // _PAGE * _PAGE, _HUGEPAGE)
    return out
