"""What a part of a graph computes, element by element, in float64.

Only operators of a few names, scalars and one input: enough for GELU in any spelling, and nothing that a hostile file
could make expensive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from gelu_fast.export.forms import FLOATS

F64 = npt.NDArray[np.float64]


def _of(function: Callable[[float], float]) -> Callable[[F64], F64]:
    made = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(made(x), np.float64)


def _sigmoid(x: F64) -> F64:
    return np.asarray(1 / (1 + np.exp(-x)))


# Erfc is no operator of ONNX; TensorFlow's exporters write it all the same.
OPERATORS: dict[str, Callable[..., Any]] = {
    "Abs": np.abs, "Add": np.add, "Cast": lambda x: x, "CastLike": lambda x: x, "Div": np.divide, "Erf": _of(math.erf),
    "Erfc": _of(math.erfc), "Exp": np.exp, "Greater": np.greater, "GreaterOrEqual": np.greater_equal,
    "Identity": lambda x: x, "Less": np.less, "LessOrEqual": np.less_equal, "Max": lambda *a: reduce(np.maximum, a),
    "Min": lambda *a: reduce(np.minimum, a), "Mul": np.multiply, "Neg": np.negative, "Pow": np.power,
    "Reciprocal": np.reciprocal, "Relu": lambda x: np.maximum(x, 0), "Sigmoid": _sigmoid, "Sqrt": np.sqrt,
    "Sub": np.subtract, "Sum": lambda *a: reduce(np.add, a), "Tanh": np.tanh, "Where": np.where,
}  # fmt: skip
# Where a GELU may begin to be recognised.
CORES = ("Erf", "Erfc", "Tanh", "Sigmoid", "Exp")


def known(node: Any) -> bool:
    """Whether a node of onnx_ir is an operator that `evaluate` knows, on floats."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in OPERATORS or len(node.outputs) != 1:
        return False
    if node.op_type == "Cast":
        to = node.attributes.get("to")
        return to is not None and not to.is_ref() and to.value in FLOATS
    return all(value is not None for value in node.inputs)


def idle(node: Any) -> bool:
    """Whether a node hands on its input as it is: an Identity, or a Cast to the type it has."""
    if node.op_type in ("Cast", "CastLike"):
        before, after = node.inputs[0].dtype, node.outputs[0].dtype
        return before is not None and before == after
    return bool(node.op_type == "Identity")


class Reader:
    """Reads the graphs of one ir.Model; remembers which values are scalars."""

    def __init__(self) -> None:
        self._scalars: dict[int, float | None] = {}

    def scalar(self, value: Any, depth: int = 0) -> float | None:
        """The number that a value always is: a constant of one element, or computed from such; otherwise None."""
        if id(value) not in self._scalars:
            self._scalars[id(value)] = None if value is None or depth > 8 else self._find_scalar(value, depth)
        return self._scalars[id(value)]

    def _find_scalar(self, value: Any, depth: int) -> float | None:
        node = value.producer()
        if node is None:
            return _number(value.const_value) if value.const_value is not None and value.is_initializer() else None
        if node.op_type == "Constant":
            return _attribute(node)
        if not known(node):
            return None
        numbers = []
        for operand in operands(node):
            number = self.scalar(operand, depth + 1)
            if number is None:
                return None
            numbers.append(np.float64(number))
        with np.errstate(all="ignore"):
            return float(OPERATORS[node.op_type](*numbers))

    def region(self, output: Any, entry: Any, limit: int) -> list[Any] | None:
        """The nodes between two values, in order; None if `output` depends on more than `entry` and scalars.

        limit: how many nodes at most.
        """
        order: list[Any] = []
        seen: set[int] = set()
        stack: list[tuple[Any, bool]] = [(output, False)]
        while stack:
            value, done = stack.pop()
            node = value.producer()
            if done:
                order.append(node)
                continue
            if value is entry or (node is not None and id(node) in seen) or self.scalar(value) is not None:
                continue
            if node is None or not known(node) or len(seen) >= limit:
                return None
            seen.add(id(node))
            stack.append((value, True))
            stack += [(v, False) for v in operands(node)]
        return order if self._in_order(order, entry) else None

    def _in_order(self, nodes: list[Any], entry: Any) -> bool:
        """Whether each node's operands come before it; in a graph with a cycle they can't."""
        ready = {id(entry)}
        for node in nodes:
            if not all(id(v) in ready or self.scalar(v) is not None for v in operands(node)):
                return False
            ready.add(id(node.outputs[0]))
        return True

    def evaluate(self, nodes: Iterable[Any], entry: Any, output: Any, x: F64) -> F64:
        """The value of `output` where `entry` is `x`; `nodes` are what `region` gave."""
        values: dict[int, Any] = {id(entry): x}

        def find(value: Any) -> Any:
            number = self.scalar(value)
            return values[id(value)] if number is None else np.float64(number)

        with np.errstate(all="ignore"):
            for node in nodes:
                values[id(node.outputs[0])] = OPERATORS[node.op_type](*map(find, operands(node)))
        return np.broadcast_to(np.asarray(values[id(output)], np.float64), x.shape)


def operands(node: Any) -> Any:
    """The inputs that the result depends on by value."""
    return node.inputs[:1] if node.op_type == "CastLike" else node.inputs


def _attribute(node: Any) -> float | None:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        found = node.attributes.get(name)
        if found is None or found.is_ref():
            continue
        # The attribute's type is the file's to say, and may be any.
        if found.type.name == "TENSOR":
            return _number(found.value)
        if found.type.name in ("FLOAT", "INT", "FLOATS", "INTS"):
            numbers = np.ravel(found.value)
            return float(numbers[0]) if numbers.size == 1 else None
    return None


def _number(tensor: Any) -> float | None:
    """Of a tensor of one element; its data is not looked at unless its shape says so."""
    if math.prod(tensor.shape) != 1:
        return None
    try:
        return float(np.asarray(tensor.numpy()).astype(np.float64).reshape(()))
    except (ValueError, TypeError, OSError, KeyError, AttributeError, NotImplementedError):
        return None
