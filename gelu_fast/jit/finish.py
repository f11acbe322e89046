"""From F back to the function: what every formula ends in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def make_finish(p: Any, k: SimpleNamespace) -> tuple[Any, Any, Any]:
    """finish0(x, f), finish1(x, f), finish2(x, f): f is F * 2^shift, no subnormal."""
    fma = p.fma
    zero, minus_zero, one = k.real(0), k.real(-0.0), k.real(1)
    unshift, minus_unshift = k.unshift, -k.unshift

    @p.function
    def finish0(x, f):
        # x < 0 gives -0.0 - F, so that what underflows is -0.0; nan stays
        return fma(f, minus_unshift, minus_zero if x < zero else x)

    @p.function
    def finish1(x, f):
        return fma(f, unshift if x < zero else minus_unshift, zero if x < zero else one)

    @p.function
    def finish2(x, f):
        return f * unshift

    return finish0, finish1, finish2
