"""`gelu_fast.gelu` and its companions inside ``@njit``: Numba calls `init` by the ``numba_extensions`` entry point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

import gelu_fast
from gelu_fast.forms import FORMS

from .scalars import INLINED, checked_type


def init() -> None:
    """The overloads are registered by this module's import."""


def scalar_name(function: str, approximate: Any) -> str:
    """The nine functions' name for a form given as a Numba type."""
    form = approximate
    if isinstance(approximate, types.Omitted):
        form = approximate.value
    elif isinstance(approximate, types.Literal):
        form = approximate.literal_value
    elif isinstance(approximate, types.UnicodeType):
        raise TypingError(f"{function}: approximate: in compiled code it must be a literal string")
    if form not in FORMS:
        raise TypingError(f"{function}: approximate: expected one of {', '.join(map(repr, FORMS))}, got {form!r}")
    stem = "gelu" if form == "none" else f"gelu_{form}"
    return stem + function.removeprefix("gelu")


def _absent(function: str, **options: Any) -> None:
    for name, value in options.items():
        if not (value is None or isinstance(value, types.Omitted | types.NoneType)):
            raise TypingError(f"{function}: {name}: not available in compiled code")


def _register(function: Callable[..., Any]) -> None:
    name = function.__name__

    @overload(function, strict=True, jit_options=INLINED, prefer_literal=True)
    def unary(x, approximate="none", out=None, backend=None):
        _absent(name, out=out, backend=backend)
        scalar: Any = SCALARS[scalar_name(name, approximate)]
        checked_type(name, "x", x)
        return lambda x, approximate="none", out=None, backend=None: scalar(x)


SCALARS = {name: getattr(gelu_fast.jit.scalars, name) for name in gelu_fast.jit.__all__}

for _function in (gelu_fast.gelu, gelu_fast.gelu_grad, gelu_fast.gelu_grad2):
    _register(_function)


@overload(gelu_fast.gelu_backward, strict=True, jit_options=INLINED, prefer_literal=True)
def _gelu_backward(dy, x, approximate="none", out=None, backend=None):
    _absent("gelu_backward", out=out, backend=backend)
    scalar: Any = SCALARS[scalar_name("gelu_grad", approximate)]
    kinds = [checked_type("gelu_backward", "dy", dy), checked_type("gelu_backward", "x", x)]
    common: Any = types.float64 if types.float64 in kinds else types.float32
    dtype = np.dtype(str(common))
    if isinstance(x, types.Array) and kinds[1] != common:
        return lambda dy, x, approximate="none", out=None, backend=None: dy * scalar(x.astype(dtype))
    if isinstance(x, types.Array):
        return lambda dy, x, approximate="none", out=None, backend=None: dy * scalar(x)
    return lambda dy, x, approximate="none", out=None, backend=None: dy * scalar(common(x))
