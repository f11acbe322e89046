"""Every spelling of GELU against mpmath, in onnxruntime; which operators it uses, and what becomes of it."""

import mpmath
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from gelu_fast.export import forms

NAMED = [(form, formula) for form in forms.FORMS for formula in ("none", "tanh", "quick")
         if (form, formula) != ("native", "quick")]  # fmt: skip
PRIMITIVES = {"Exp", "Abs", "Neg", "Mul", "Add", "Sub", "Div", "Max", "Min", "Less", "Where", "Constant", "Cast"}
POINTS = np.concatenate([
    np.random.default_rng(0).normal(0, 2, 400), np.linspace(-15, 6, 211),
    [-38, -30, -20, 1e10, -1e10, 2.5e19, -2.5e19, 1e-30, -1e-30, 65504, -65504, 0.0, -0.0],
])  # fmt: skip


def exact(x, formula):
    with mpmath.workprec(160):
        x = mpmath.mpf(float(x))
        if formula == "none":
            return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2
        w = mpmath.mpf("1.702") * x if formula == "quick" else (
            2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))  # fmt: skip
        return x / (1 + mpmath.exp(-w))


def activation(form, formula, dtype, opset=20, compute=None):
    """A model of the activation alone."""
    nodes = forms.Nodes(dtype, "gelu.")
    forms.emit(form, formula, nodes, "x", "y", compute)
    element = forms.element_type(dtype)
    value = [helper.make_tensor_value_info(name, element, ["n"]) for name in "xy"]
    graph = helper.make_graph(nodes.nodes, "activation", value[:1], value[1:])
    functions = [forms.make_function(formula, compute or dtype, opset)] if form == "function" else []
    domains = (("", opset), (forms.CONTRIB, 1), (forms.LOCAL, 1))
    model = helper.make_model(
        graph, functions=functions, opset_imports=[helper.make_opsetid(*d) for d in domains], ir_version=9
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def session(model, path=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if path:
        options.optimized_model_filepath = str(path)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def operators(model, tmp_path):
    """What onnxruntime keeps of a model whose GELU isn't its output: FastGelu is fused only inside."""
    model.graph.node.append(helper.make_node("Neg", ["y"], ["negated"]))
    model.graph.output[0].name = "negated"
    session(model, tmp_path / "optimised.onnx")
    return [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node if node.op_type != "Neg"]


@pytest.mark.parametrize(("form", "formula"), NAMED)
@pytest.mark.parametrize("opset", [13, 17, 20, 23])
def test_float32(form, formula, opset):
    if opset < forms.FIRST_OPSET[form]:
        return
    x = POINTS.astype(np.float32)
    want = np.array([float(exact(v, formula)) for v in x])
    y = session(activation(form, formula, "float32", opset)).run(None, {"x": x})[0]
    np.testing.assert_allclose(y, want, rtol=2e-6, atol=3e-6)


@pytest.mark.parametrize("formula", ["none", "tanh", "quick"])
@pytest.mark.parametrize(("dtype", "absolute", "relative"), [
    ("float64", 1e-14, 1e-13), ("float32", 1e-7, 1.3e-7), ("float16", 6e-8, 2**-10)
])  # fmt: skip
def test_primitive_keeps_the_tail(formula, dtype, absolute, relative):
    model = activation("primitive", formula, dtype)
    assert {node.op_type for node in model.graph.node} <= PRIMITIVES
    with np.errstate(over="ignore"):
        x = POINTS.astype(dtype)
    x = x[np.isfinite(x)]
    run = session(model)
    y = run.run(None, {"x": x})[0]
    want = np.array([float(exact(v, formula)) for v in x])
    error = np.abs(y.astype(np.float64) - want)
    small = np.finfo(dtype).smallest_subnormal
    assert (error <= relative * np.abs(want) + small).all()
    assert (error <= absolute * np.maximum(1, np.abs(want) * (1 if dtype == "float64" else 2**14))).all()
    limits = run.run(None, {"x": np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], dtype)})[0]
    np.testing.assert_array_equal(limits, np.array([np.inf, 0, np.nan, 0, 0], dtype))
    assert np.signbit(limits)[[1, 3, 4]].tolist() == [True, False, True]


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize(("formula", "kept"), [
    ("none", {"Gelu"}), ("tanh", {"FastGelu"}), ("quick", {"QuickGelu"})
])  # fmt: skip
def test_the_fusable_chain_is_fused(tmp_path, formula, kept, opset):
    assert set(operators(activation("fusable", formula, "float32", opset), tmp_path)) == kept
    if opset >= forms.FIRST_OPSET["function"]:
        assert set(operators(activation("function", formula, "float32", opset), tmp_path)) == kept


@pytest.mark.parametrize("form", ["native", "fusable", "contrib"])
def test_float16_between_casts_keeps_one_operator(tmp_path, form):
    kept = operators(activation(form, "tanh", "float16", 20, "float32"), tmp_path)
    assert [name for name in kept if name != "Cast"] in (["Gelu"], ["FastGelu"])
    assert "Tanh" in operators(activation(form, "tanh", "float16", 20), tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("form", "formula"), NAMED)
def test_constants_have_the_right_type(form, formula, dtype):
    """Full shape inference refuses mixed types; here, which types there are."""
    model = activation(form, formula, dtype)
    nodes = [n for part in (model.graph, *model.functions) for n in part.node if n.op_type == "Constant"]
    types = {n.attribute[0].t.data_type for n in nodes}
    assert types <= {forms.element_type(forms.WIDER[dtype] if form == "primitive" else dtype)}
