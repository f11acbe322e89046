"""The ways to spell GELU in ONNX, as nodes from one tensor to another.

    native     the standard operator Gelu, opset 20 and later; exact and tanh
    fusable    the chain of standard operators that onnxruntime replaces by its own Gelu, FastGelu or QuickGelu
    contrib    com.microsoft's Gelu, FastGelu, QuickGelu, BiasGelu: onnxruntime alone has them
    function   a function of the model's own (domain gelu_fast), whose body is the fusable chain
    primitive  Exp, Abs, Mul, Add, Sub, Div, Min, Less and Where alone: needs no Erf, runs in float64, and keeps the
               tail, the infinities and the signs of zeros

The chains cancel for x < 0 (they form 1 + erf or 1 + tanh), as every runtime's own kernel does; only primitive doesn't.
It computes in a wider type (WIDER): float64 for float32, float32 for the 16-bit types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gelu_fast import coefficients
from gelu_fast.export.lazy import require
from gelu_fast.forms import QUICK_SLOPE, TANH_CUBIC

FORMS = ("native", "fusable", "contrib", "function", "primitive")
CONTRIB = "com.microsoft"
LOCAL = "gelu_fast"  # domain of model-local functions
LOCAL_NAMES = {"none": "Gelu", "tanh": "GeluTanh", "quick": "GeluQuick"}
# The first opset of each form: of the native operator; of MatMul and Add in bfloat16; of functions (IR 8).
FIRST_OPSET = {"native": 20, "fusable": 13, "contrib": 13, "function": 15, "primitive": 13}
WITH_BIAS = {"none": "BiasGelu", "tanh": "FastGelu"}  # contrib's operators that add a bias first
WIDER = {"float64": "float64", "float32": "float64", "float16": "float32", "bfloat16": "float32"}
FLOATS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}  # TensorProto's numbers


def element_type(dtype: str) -> int:
    """TensorProto's number of a dtype's name."""
    return next(number for number, name in FLOATS.items() if name == dtype)


class Nodes:
    """A list of nodes that grows; every new tensor is called after `prefix`."""

    def __init__(self, dtype: str, prefix: str) -> None:
        self.dtype, self.prefix = dtype, prefix
        self.nodes: list[Any] = []
        self._constants: dict[tuple[str, str], str] = {}

    def add(self, operator: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any) -> str:
        """A node of one output, whose name is returned."""
        helper: Any = require("onnx.helper")
        name = output or f"{self.prefix}{len(self.nodes)}_{operator.lower()}"
        node = helper.make_node(operator, inputs, [name], name=f"{name}/{operator}", domain=domain, **attributes)
        self.nodes.append(node)
        return name

    def constant(self, value: float, dtype: str | None = None) -> str:
        """The name of a scalar, rounded once to the dtype."""
        helper: Any = require("onnx.helper")
        dtype = dtype or self.dtype
        key = (float(value).hex(), dtype)
        if key not in self._constants:
            tensor = helper.make_tensor("value", element_type(dtype), (), [value])
            self._constants[key] = self.add("Constant", value=tensor)
        return self._constants[key]


def emit(form: str, formula: str, nodes: Nodes, x: str, y: str, compute: str | None = None) -> None:
    """Append GELU from tensor `x` to tensor `y`, both of `nodes.dtype`.

    Parameters
    ----------
    form : {"native", "fusable", "contrib", "function", "primitive"}
        native has no quick formula; whoever chooses the form (targets.py) has refused it.
    formula : {"none", "tanh", "quick"}
    nodes : Nodes
    compute : str, optional
        The dtype between two Casts; by default that of the tensors, for primitive `WIDER`.
    """
    compute = compute or (WIDER[nodes.dtype] if form == "primitive" else nodes.dtype)
    if compute == nodes.dtype:
        _EMIT[form](nodes, x, y, formula, nodes.dtype)
        return
    inner = Nodes(compute, nodes.prefix)
    inner.nodes = nodes.nodes  # one list, so that names stay unique
    start = inner.add("Cast", x, output=f"{nodes.prefix}x", to=element_type(compute))
    _EMIT[form](inner, start, f"{nodes.prefix}y", formula, nodes.dtype)
    inner.add("Cast", f"{nodes.prefix}y", output=y, to=element_type(nodes.dtype))


def _native(n: Nodes, x: str, y: str, formula: str, _: str) -> None:
    n.add("Gelu", x, output=y, approximate=formula)


def _contrib(n: Nodes, x: str, y: str, formula: str, _: str) -> None:
    operator, attributes = _CONTRIB_OPERATORS[formula]
    n.add(operator, x, output=y, domain=CONTRIB, **attributes)


def _function(n: Nodes, x: str, y: str, formula: str, _: str) -> None:
    n.add(LOCAL_NAMES[formula], x, output=y, domain=LOCAL)


def _fusable(n: Nodes, x: str, y: str, formula: str, _: str) -> None:
    _CHAINS[formula](n, x, y)


_CONTRIB_OPERATORS: dict[str, tuple[str, dict[str, float]]] = {
    "none": ("Gelu", {}),
    "tanh": ("FastGelu", {}),
    "quick": ("QuickGelu", {"alpha": QUICK_SLOPE}),
}


def make_function(formula: str, dtype: str, opset: int) -> Any:
    """The model-local function: the fusable chain, its constants in the dtype."""
    helper: Any = require("onnx.helper")
    nodes = Nodes(dtype, "")
    emit("fusable", formula, nodes, "x", "y")
    imports = [helper.make_opsetid("", opset)]
    return helper.make_function(LOCAL, LOCAL_NAMES[formula], ["x"], ["y"], nodes.nodes, imports)


def _exact_chain(n: Nodes, x: str, y: str) -> None:
    # Divided by sqrt(2) and ½ last: onnxruntime knows neither x·0.7071 nor x·(½·(1 + erf)).
    one_plus = n.add("Add", n.add("Erf", n.add("Div", x, n.constant(math.sqrt(2)))), n.constant(1))
    n.add("Mul", n.add("Mul", x, one_plus), n.constant(0.5), output=y)


def _tanh_chain(n: Nodes, x: str, y: str) -> None:
    # Of the two spellings that are fused this one has no Pow.
    scaled = n.add("Mul", x, n.constant(math.sqrt(2 / math.pi)))
    square = n.add("Mul", x, n.add("Mul", x, n.constant(TANH_CUBIC)))
    inner = n.add("Mul", scaled, n.add("Add", square, n.constant(1)))
    one_plus = n.add("Add", n.add("Tanh", inner), n.constant(1))
    n.add("Mul", n.add("Mul", x, n.constant(0.5)), one_plus, output=y)


def _quick_chain(n: Nodes, x: str, y: str) -> None:
    n.add("Mul", x, n.add("Sigmoid", n.add("Mul", x, n.constant(QUICK_SLOPE))), output=y)


_CHAINS: dict[str, Callable[[Nodes, str, str], None]] = {
    "none": _exact_chain, "tanh": _tanh_chain, "quick": _quick_chain,
}  # fmt: skip


def _primitive(n: Nodes, x: str, y: str, formula: str, result: str) -> None:
    if formula == "none":
        _primitive_exact(n, x, y, result == "float64")
    else:
        _primitive_sigmoid(n, x, y, formula)


def _primitive_exact(n: Nodes, x: str, y: str, full: bool) -> None:
    """max(x, 0) - t·Q(t) with t = |x| and Q(t) = erfc(t/√2)/2 = P·exp(-t²/2); P as jit/normal.py has it.

    full: the result is float64, not narrowed afterwards.
    """
    tables: dict[str, dict[str, Any]] = coefficients.JIT
    table = tables["f64"]["mills"] if full else tables["f32"]["rise"]
    bound: dict[Any, Any] = coefficients.F64_TABLES if full else coefficients.F32_TABLES
    t_max = float.fromhex(bound["none", 0]["t_max"])
    # Min may lose a nan, and onnxruntime's Where the sign of a zero; `positive`, a product, keeps both.
    least, zero, one = n.constant(-t_max), n.constant(0), n.constant(1)
    x = n.add("Where", n.add("Less", x, least), least, x)
    positive = n.add("Mul", x, n.add("Where", n.add("Less", x, zero), zero, one))
    t = n.add("Min", n.add("Abs", x), n.constant(t_max))
    if full:
        shifted = n.add("Add", t, n.constant(float.fromhex(table["c"])))
        v, at = n.add("Div", t, shifted), n.add("Div", one, shifted)
    else:
        scaled = n.add("Mul", t, n.constant(float.fromhex(table["a"])))
        v = at = n.add("Div", t, n.add("Add", scaled, n.constant(4)))
    u = n.add("Sub", at, n.constant(float.fromhex(table["centre"])))
    half = n.add("Mul", v, _polynomial(n, u, [float.fromhex(c) for c in table["coefs"]]))
    if not full:  # P0/2 = v + v²·polynomial
        half = n.add("Add", v, n.add("Mul", v, half))
    power = n.add("Exp", n.add("Mul", n.add("Mul", t, t), n.constant(-0.5)))
    g = n.add("Mul", n.add("Add", half, half), power)
    n.add("Sub", positive, g, output=y)


def _primitive_sigmoid(n: Nodes, x: str, y: str, formula: str) -> None:
    """x / (1 + exp(-w)), w = 1.702x or 2√(2/π)(x + 0.044715x³)."""
    # Below it nothing but the sign is left of GELU, and e^-w overflows to infinity.
    bound: dict[Any, Any] = coefficients.F64_TABLES if n.dtype == "float64" else coefficients.F32_TABLES
    least = n.constant(-float.fromhex(bound[formula, 0]["t_max"]))
    x = n.add("Where", n.add("Less", x, least), least, x)  # -inf/inf would be nan
    if formula == "quick":
        w = n.add("Mul", x, n.constant(-QUICK_SLOPE))
    else:
        cubic = n.add("Mul", n.add("Mul", x, x), n.constant(TANH_CUBIC))
        scaled = n.add("Mul", x, n.constant(-2 * math.sqrt(2 / math.pi)))
        w = n.add("Mul", n.add("Add", cubic, n.constant(1)), scaled)
    n.add("Div", x, n.add("Add", n.add("Exp", w), n.constant(1)), output=y)


def _polynomial(n: Nodes, u: str, coefs: list[float]) -> str:
    total = n.constant(coefs[-1])
    for c in reversed(coefs[:-1]):
        total = n.add("Add", n.add("Mul", total, u), n.constant(c))
    return total


_EMIT: dict[str, Callable[[Nodes, str, str, str, str], None]] = {
    "native": _native, "fusable": _fusable, "contrib": _contrib, "function": _function, "primitive": _primitive,
}  # fmt: skip
