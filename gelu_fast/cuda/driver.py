"""Whether there is a compiler and a GPU. Nothing here imports Numba before it is called."""

from __future__ import annotations

from functools import cache
from typing import Any

_ADVICE = "pip install 'gelu-fast[cuda]', on a machine with an NVIDIA GPU and its driver"


@cache
def module() -> Any:
    """`numba.cuda` of numba-cuda.

    Raises
    ------
    ImportError
        If numba-cuda is not installed.
    """
    try:
        import numba_cuda  # noqa: F401
        from numba import cuda
    except ImportError as error:
        raise ImportError(f"gelu_fast.cuda needs numba-cuda ({error}): {_ADVICE}") from error
    return cuda


@cache
def is_simulator() -> bool:
    module()
    from numba.cuda import config

    return bool(config.ENABLE_CUDASIM)


@cache  # what it returns, not what it raises
def check() -> Any:
    """`numba.cuda`, with a GPU to run on.

    Raises
    ------
    ImportError
        If numba-cuda is not installed.
    RuntimeError
        If it finds no GPU or no driver.
    """
    cuda = module()
    if not cuda.is_available():
        reason = ""
        try:
            cuda.current_context()
        except Exception as error:
            reason = " ".join(str(error).split())
        raise RuntimeError(f"gelu_fast.cuda finds no GPU or no driver ({reason}): {_ADVICE}")
    return cuda
