"""GELU in many spellings, as ONNX text; h is the input, a the result."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper, parser

EXACT = {
    "div, half last": "t = Div(h, root)  e = Erf(t)  s = Add(e, one)  g = Mul(h, s)  a = Mul(g, half)",
    "div, half first": "t = Div(h, root)  e = Erf(t)  s = Add(e, one)  g = Mul(h, half)  a = Mul(g, s)",
    "half in the middle": "t = Mul(h, inverse)  e = Erf(t)  s = Add(one, e)  g = Mul(s, half)  a = Mul(h, g)",
    "orders turned": "t = Mul(inverse, h)  e = Erf(t)  s = Add(one, e)  g = Mul(half, h)  a = Mul(s, g)",
    "minus": "n = Neg(h)  t = Mul(n, inverse)  e = Erf(t)  s = Sub(one, e)  g = Mul(h, s)  a = Mul(g, half)",
    "erfc": "n = Neg(h)  t = Mul(n, inverse)  e = Erfc(t)  g = Mul(h, half)  a = Mul(g, e)",
    "function body": "two = Constant<value = float {2.0}>()  v = CastLike(two, h)  r = Sqrt(v)  t = Div(h, r)  "
                     "e = Erf(t)  "
                     "o = CastLike(one, h)  s = Sum(o, e)  p = CastLike(half, h)  g = Mul(h, s)  a = Mul(p, g)",
    "halved sum": "t = Div(h, root)  e = Erf(t)  u = Mul(e, half)  s = Add(u, half)  a = Mul(s, h)",
    "divided by two": "t = Div(h, root)  e = Erf(t)  s = Add(e, one)  g = Mul(h, s)  a = Div(g, twice)",
}  # fmt: skip
_INNER = "k = Mul(c, cubic)  i = Add(h, k)  u = Mul(i, slope)  e = Tanh(u)  s = Add(e, one)  "
TANH = {
    "pow": f"c = Pow(h, three)  {_INNER} g = Mul(h, half)  a = Mul(g, s)",
    "products": f"d = Mul(h, h)  c = Mul(d, h)  {_INNER} g = Mul(h, s)  a = Mul(g, half)",
    "factored": "l = Mul(h, slope)  c = Mul(h, cubic)  d = Mul(h, c)  i = Add(d, one)  u = Mul(l, i)  e = Tanh(u)  "
                "s = Add(e, one)  g = Mul(s, half)  a = Mul(h, g)",
    "sigmoid": "c = Pow(h, three)  k = Mul(c, cubic)  i = Add(h, k)  u = Mul(i, slope)  v = Add(u, u)  "
               "s = Sigmoid(v)  a = Mul(h, s)",
}  # fmt: skip
QUICK = {
    "sigmoid": "t = Mul(h, quick)  s = Sigmoid(t)  a = Mul(h, s)",
    "turned": "t = Mul(quick, h)  s = Sigmoid(t)  a = Mul(s, h)",
    "exp": "t = Mul(h, minus_quick)  e = Exp(t)  s = Add(one, e)  a = Div(h, s)",
}
OTHERS = {  # like a GELU, and none
    "silu": "s = Sigmoid(h)  a = Mul(h, s)",
    "without half": "t = Div(h, root)  e = Erf(t)  s = Add(e, one)  a = Mul(h, s)",
    "normal distribution": "t = Div(h, root)  e = Erf(t)  s = Add(e, one)  a = Mul(s, half)",
    "another constant": "t = Mul(h, half)  e = Erf(t)  s = Add(e, one)  g = Mul(h, s)  a = Mul(g, half)",
    "tanh": "a = Tanh(h)",
    "mish": "e = Exp(h)  s = Add(e, one)  l = Log(s)  t = Tanh(l)  a = Mul(h, t)",
    "two inputs": "t = Div(h, root)  e = Erf(t)  s = Add(e, one)  g = Mul(h2, s)  a = Mul(g, half)",
}
ALL = [(formula, name, text) for formula, table in (("none", EXACT), ("tanh", TANH), ("quick", QUICK))
       for name, text in table.items()]  # fmt: skip
SCALARS = {"root": np.sqrt(2.0), "inverse": np.sqrt(0.5), "one": 1.0, "half": 0.5, "three": 3.0, "cubic": 0.044715,
           "twice": 2.0, "slope": np.sqrt(2 / np.pi), "quick": 1.702, "minus_quick": -1.702, "far": 50.0,
           "tiny": 1e-6}  # fmt: skip
ELEMENTS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE}


def lines(text):
    return [line for line in text.split("  ") if line.strip()]


def build(text, dtype="float32", opset=17, *, constants="initializers", inside="", before="h = MatMul(x, w)",
          after="y = MatMul(a, w)", compute=None):  # fmt: skip
    """A model around a spelling.

    constants: "initializers", "nodes" or "inputs" (with defaults). compute: the dtype between two Casts.
    """
    dtype, outer = compute or dtype, dtype
    if compute:
        text = text.replace("a = ", "a0 = ")
        text = f"h = Cast<to = {ELEMENTS[compute]}>(h0)  {text}  a = Cast<to = {ELEMENTS[outer]}>(a0)"
        before = before.replace("h = ", "h0 = ")
    nodes = [parser.parse_node(line.strip()) for line in (*lines(before), *lines(text), *lines(after))]
    used = {name for node in nodes for name in node.input}
    tensors = [
        numpy_helper.from_array(np.asarray(value, dtype), name) for name, value in SCALARS.items() if name in used
    ]
    weight = np.random.default_rng(0).standard_normal((4, 4)).astype(outer)
    inputs = [helper.make_tensor_value_info("x", ELEMENTS[outer], ["n", 4])]
    if "h2" in used:
        inputs.append(helper.make_tensor_value_info("h2", ELEMENTS[outer], ["n", 4]))
    if constants == "nodes":
        made = [helper.make_node("Constant", [], [t.name], value=t) for t in tensors]
        nodes, tensors = made + nodes, []
    if constants == "inputs":
        inputs += [helper.make_tensor_value_info(t.name, t.data_type, []) for t in tensors]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info(nodes[-1].output[0], ELEMENTS[outer], ["n", 4])],
        [*tensors, numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)
