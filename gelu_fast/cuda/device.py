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


# The kinds of operation: how many inputs and results.
OPERANDS = {
    "unary": (1, 1),  # x
    "backward": (2, 1),  # dy, x
    "bias": (2, 1),  # x, bias
    "gate": (2, 1),  # gate, value
    "bias_backward": (3, 1),  # dy, x, bias; and the sums of columns
    "gate_backward": (3, 2),  # dy, gate, value: of the value, of the gate
}


@cache
def elements(operation: str, dtype: str) -> tuple[Any, ...]:
    """What is done to one element of each input, for every result.

    Parameters
    ----------
    operation : str
        As for `split`; of a kind in OPERANDS.
    dtype : {"float16", "bfloat16", "float32", "float64"}
        Of the array; 16-bit types come and go as float32.
    """
    p = target()
    strict = p.strict
    kind, name = split(operation)
    f = _function(name, dtype)
    slope: Any = _function(name + "_grad", dtype) if kind == "gate_backward" else None

    def unary(x):  # type: ignore[no-untyped-def]
        return strict(f(x))

    def backward(dy, x):  # type: ignore[no-untyped-def]
        return strict(dy * f(x))

    def bias(x, b):  # type: ignore[no-untyped-def]
        return strict(f(x + b))

    def gate(g, value):  # type: ignore[no-untyped-def]
        return strict(value * f(g))

    def bias_backward(dy, x, b):  # type: ignore[no-untyped-def]
        return strict(dy * f(x + b))

    def of_value(dy, g, value):  # type: ignore[no-untyped-def]
        return strict(dy * f(g))

    def of_gate(dy, g, value):  # type: ignore[no-untyped-def]
        return strict(dy * value * slope(g))

    functions = {
        "unary": (unary,), "backward": (backward,), "bias": (bias,), "gate": (gate,),
        "bias_backward": (bias_backward,), "gate_backward": (of_value, of_gate),
    }  # fmt: skip
    return tuple(map(p.outer, functions[kind]))


def _function(name: str, dtype: str) -> Any:
    """One of the nine, as good as an array of `dtype` needs it."""
    if name == "gelu" and dtype in ("float16", "bfloat16"):
        return short.make(target(), dtype)
    return scalars("float64" if dtype == "float64" else "float32")[name]


def split(operation: str) -> tuple[str, str]:
    """The kind of an operation and the name, of the nine, of its function.

    Parameters
    ----------
    operation : str
        A name of the nine; ``…_backward``, ``bias_…``, ``gate_…``, ``bias_…_backward`` or ``gate_…_backward``; or
        ``fold`` and ``total`` of sums.py, which have no function.
    """
    for kind in ("bias", "gate"):
        if operation.startswith(kind + "_"):
            name = operation.removeprefix(kind + "_")
            if not name.endswith("_backward"):
                return kind, name
            stem = name.removesuffix("_backward")
            return f"{kind}_backward", stem + "_grad" if kind == "bias" else stem
    if operation.endswith("_backward"):
        return "backward", operation.removesuffix("_backward") + "_grad"
    return (operation, "") if operation in ("fold", "total") else ("unary", operation)
