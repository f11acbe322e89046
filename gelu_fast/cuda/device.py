"""The functions of one element, made from the formulas of gelu_fast.jit for the CUDA compiler or its simulator."""

from __future__ import annotations

from functools import cache
from typing import Any

from gelu_fast.jit import formulas
from gelu_fast.jit.logistic import make_logistic
from gelu_fast.jit.normal import make_normal

from . import short
from .driver import is_simulator


@cache
def target() -> Any:
    """The module of primitives."""
    if is_simulator():
        from . import simulated

        return simulated
    from . import primitives

    return primitives


@cache
def scalars(compute: str) -> dict[str, Any]:
    """The nine functions in float32 or float64.

    Both take the double-word arithmetic that the CPU keeps for float64: the CPU's float32 derivatives of the tanh and
    quick forms are computed in double, of which most GPUs do one operation for every 32 or 64 in float32.
    """
    dtype = "f32" if compute == "float32" else "f64"
    p, k = target(), formulas.constants(dtype)
    out: dict[str, Any] = make_normal(p, k, dtype)
    out |= make_logistic(p, k, "f64")
    if dtype == "f32":
        out |= make_logistic(p, k, "f32")  # the values, for which it has something shorter
    return out


@cache
def element(operation: str, dtype: str) -> Any:
    """What is done to one element of each input.

    Parameters
    ----------
    operation : str
        A name of the nine; ``…_backward`` (dy, x), ``bias_…`` (x, bias) or ``gate_…`` (gate, value).
    dtype : {"float16", "bfloat16", "float32", "float64"}
        Of the array; 16-bit types come and go as float32.
    """
    p = target()
    strict = p.strict
    kind, name = split(operation)
    if name == "gelu" and dtype in ("float16", "bfloat16"):
        f = short.make(p, dtype)
    else:
        f = scalars("float64" if dtype == "float64" else "float32")[name]

    def unary(x):  # type: ignore[no-untyped-def]
        return strict(f(x))

    def backward(dy, x):  # type: ignore[no-untyped-def]
        return strict(dy * f(x))

    def bias(x, b):  # type: ignore[no-untyped-def]
        return strict(f(x + b))

    def gate(g, value):  # type: ignore[no-untyped-def]
        return strict(value * f(g))

    return p.outer({"unary": unary, "backward": backward, "bias": bias, "gate": gate}[kind])


def split(operation: str) -> tuple[str, str]:
    """The kind of an operation and the name, of the nine, of its function."""
    if operation.endswith("_backward"):
        return "backward", operation.removesuffix("_backward") + "_grad"
    for kind in ("bias", "gate"):
        if operation.startswith(kind + "_"):
            return kind, operation.removeprefix(kind + "_")
    return "unary", operation
