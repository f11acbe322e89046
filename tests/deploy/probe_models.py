"""Models that ask a runtime one question each: what it reads, has a kernel for, and fuses. Written with onnx alone.

Kinds of case: "opset" and "ir" (is it read?), "kernel" (one node of one dtype), "chain" (a feed-forward block with
one spelling of GELU). bfloat16 enters and leaves through Casts, since not every runtime takes it as an input.
"""

import json
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, parser

ELEMENTS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE,
            "bfloat16": TensorProto.BFLOAT16}  # fmt: skip
LEVELS = ("disabled", "basic", "extended", "all")
WIDTH, HIDDEN = 4, 8
OPSETS, IRS = range(15, 31), range(7, 17)

# Of one node, from x (and z, of x's shape; w, a square matrix; c, a vector of x's last axis; p, a bool of x's shape).
UNARY = ("Erf", "Tanh", "Exp", "Sigmoid", "Abs", "Neg", "Sqrt", "Reciprocal", "Softplus", "Floor", "Round", "Log")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")
KERNELS = {
    **{op: f"y = {op}(x)" for op in UNARY},
    **{op: f"y = {op}(x, z)" for op in BINARY},
    "MatMul": "y = MatMul(x, w)",
    "Gemm": "y = Gemm(x, w, c)",
    "Clip": "y = Clip(x, low, high)",
    "Where": "y = Where(p, x, z)",
    "Sum": "y = Sum(x, z)",
    "Less": "q = Less(x, z)",
    "Greater": "q = Greater(x, z)",
    "GreaterOrEqual": "q = GreaterOrEqual(x, z)",
    "Gelu": "y = Gelu(x)",
    "Gelu tanh": 'y = Gelu<approximate = "tanh">(x)',
    "com.microsoft.Gelu": "y = com.microsoft.Gelu(x)",
    "com.microsoft.FastGelu": "y = com.microsoft.FastGelu(x)",
    "com.microsoft.FastGelu bias": "y = com.microsoft.FastGelu(x, c)",
    "com.microsoft.BiasGelu": "y = com.microsoft.BiasGelu(x, c)",
    "com.microsoft.QuickGelu": "y = com.microsoft.QuickGelu<alpha = 1.702>(x)",
    "Cast to float32": "f = Cast<to = 1>(x)",
    "Cast to float64": "d = Cast<to = 11>(x)",
}

_DIV, _MUL = "t = Div(h, root)", "t = Mul(h, inverse)"
_ERF = ["e = Erf(t)", "s = Add(e, one)"]
_CUBE = {"pow": ["c = Pow(h, three)"], "mul": ["c2 = Mul(h, h)", "c = Mul(c2, h)"]}
_INNER = ["k = Mul(c, cubic)", "i = Add(h, k)", "u = Mul(i, slope)", "e = Tanh(u)", "s = Add(e, one)"]
_LAST, _FIRST, _MIDDLE = (
    ["g = Mul(h, s)", "a = Mul(g, half)"],
    ["g = Mul(h, half)", "a = Mul(g, s)"],
    ["g = Mul(s, half)", "a = Mul(h, g)"],
)
# Spellings of a = GELU(h).
CHAINS = {
    "none: div, half last": [_DIV, *_ERF, *_LAST],
    "none: div, half first": [_DIV, *_ERF, *_FIRST],
    "none: div, half middle": [_DIV, *_ERF, *_MIDDLE],
    "none: mul, half last": [_MUL, *_ERF, *_LAST],
    "none: mul, half first": [_MUL, *_ERF, *_FIRST],
    "none: mul, half middle": [_MUL, *_ERF, *_MIDDLE],
    "tanh: pow, half last": [*_CUBE["pow"], *_INNER, *_LAST],
    "tanh: pow, half first": [*_CUBE["pow"], *_INNER, *_FIRST],
    "tanh: pow, half middle": [*_CUBE["pow"], *_INNER, *_MIDDLE],
    "tanh: mul, half last": [*_CUBE["mul"], *_INNER, *_LAST],
    "tanh: mul, half first": [*_CUBE["mul"], *_INNER, *_FIRST],
    "tanh: mul, half middle": [*_CUBE["mul"], *_INNER, *_MIDDLE],
    "tanh: factored, half first": [
        "l = Mul(h, slope)", "c1 = Mul(h, cubic)", "c2 = Mul(h, c1)", "i = Add(c2, one)", "u = Mul(l, i)",
        "e = Tanh(u)", "s = Add(e, one)", *_FIRST],
    "quick: sigmoid(h k) h": ["t = Mul(h, quick)", "s = Sigmoid(t)", "a = Mul(h, s)"],
    "quick: h sigmoid(k h)": ["t = Mul(quick, h)", "s = Sigmoid(t)", "a = Mul(s, h)"],
    "none: Gelu": ["a = Gelu(h)"],
    "tanh: Gelu": ['a = Gelu<approximate = "tanh">(h)'],
    "none: com.microsoft.Gelu": ["a = com.microsoft.Gelu(h)"],
    "tanh: com.microsoft.FastGelu": ["a = com.microsoft.FastGelu(h)"],
    "quick: com.microsoft.QuickGelu": ["a = com.microsoft.QuickGelu<alpha = 1.702>(h)"],
}  # fmt: skip
SCALARS = {"root": np.sqrt(2.0), "inverse": np.sqrt(0.5), "one": 1.0, "half": 0.5, "three": 3.0, "cubic": 0.044715,
           "slope": np.sqrt(2 / np.pi), "quick": 1.702, "low": -1.0, "high": 1.0}  # fmt: skip


def build(lines, dtype, opset, ir=8, dims=("batch",), features=(WIDTH, WIDTH), arrays=None):
    """A model from x to the last line's output, with every constant that the lines name."""
    nodes = [parser.parse_node(line) for line in lines]
    used = {name for node in nodes for name in node.input}
    values = {**SCALARS, **(arrays or {})}
    result = nodes[-1].output[0]
    output = {"q": TensorProto.BOOL, "f": TensorProto.FLOAT, "d": TensorProto.DOUBLE}.get(result, ELEMENTS[dtype])
    ends = (ELEMENTS[dtype], output)
    if dtype == "bfloat16":
        for node in nodes:
            node.input[:] = ["x16" if name == "x" else name for name in node.input]
            node.output[:] = ["y16" if name == "y" else name for name in node.output]
        nodes.insert(0, helper.make_node("Cast", ["x"], ["x16"], to=TensorProto.BFLOAT16))
        if result == "y":
            nodes.append(helper.make_node("Cast", ["y16"], ["y"], to=TensorProto.FLOAT))
        ends = (TensorProto.FLOAT, TensorProto.FLOAT if result == "y" else output)
    element = helper.tensor_dtype_to_np_dtype(ELEMENTS[dtype])
    initializers = [
        numpy_helper.from_array(np.asarray(value, bool if name == "p" else element), name)
        for name, value in values.items()
        if name in used
    ]
    graph = helper.make_graph(
        nodes, "probe",
        [helper.make_tensor_value_info("x", ends[0], [*dims, features[0]])],
        [helper.make_tensor_value_info(result, ends[1], [*dims, features[1]])],
        initializers,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir)


def questions():
    """Pairs of (what is asked, model)."""
    for opset in OPSETS:
        yield {"kind": "opset", "opset": opset}, build(["y = Add(x, one)"], "float32", opset)
    for ir in IRS:
        yield {"kind": "ir", "ir": ir}, build(["y = Add(x, one)"], "float32", 17, ir)
    square = {"z": np.full((3, WIDTH), 1.5), "w": np.eye(WIDTH) + 0.25, "c": np.arange(WIDTH) / 4,
              "p": np.eye(3, WIDTH) > 0}  # fmt: skip
    for op, line in KERNELS.items():
        for dtype in ELEMENTS:
            opset = 20 if op.startswith("Gelu") else 17
            yield ({"kind": "kernel", "op": op, "dtype": dtype, "opset": opset},
                   build([line], dtype, opset, dims=(3,), arrays=square))  # fmt: skip
    rng = np.random.default_rng(5)
    block = {"w1": rng.standard_normal((WIDTH, HIDDEN)), "b1": rng.standard_normal(HIDDEN),
             "w2": rng.standard_normal((HIDDEN, WIDTH)), "b2": rng.standard_normal(WIDTH)}  # fmt: skip
    for chain, lines in CHAINS.items():
        for dims in (("batch",), ("batch", "seq")):
            for dtype in ("float32", "float16", "float64"):
                for opset in (13, 17, 20) if "Gelu" not in chain or "micro" in chain else (20,):
                    whole = ["m = MatMul(x, w1)", "h = Add(m, b1)", *lines, "o = MatMul(a, w2)", "y = Add(o, b2)"]
                    yield ({"kind": "chain", "chain": chain, "rank": len(dims) + 1, "dtype": dtype, "opset": opset},
                           build(whole, dtype, opset, dims=dims, arrays=block))  # fmt: skip


def write(folder):
    """Write all models and their cases.json into an existing folder; returns the number."""
    folder = Path(folder)
    cases = []
    rng = np.random.default_rng(6)
    for number, (ask, model) in enumerate(questions()):
        name = f"p{number:03d}"
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))
        dtype = ask.get("dtype", "float32").replace("bfloat16", "float32")
        shape = [2] * (ask.get("rank", 2) - 2) + [3, WIDTH]
        stored = f"x.{dtype}.{len(shape)}"
        if not (folder / stored).exists():  # positive, for Log, Pow and Sqrt
            (np.abs(rng.standard_normal(shape)) + 0.1).astype(dtype).tofile(folder / stored)
        levels = LEVELS if ask["kind"] == "chain" else ("disabled", "all")
        cases.append({"id": name, "model": f"{name}.onnx", "dtype": dtype, "input": "x", "levels": levels,
                      "batches": [{"x": stored, "shape": shape}], "ask": ask})  # fmt: skip
    (folder / "cases.json").write_text(json.dumps({"cases": cases}), encoding="utf-8")
    return len(cases)
