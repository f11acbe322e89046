"""The activation by itself: what is fed, what counts as wrong, and who is blamed."""

import math

import numpy as np
import onnx
import pytest
from blocks import arrays
from onnx import TensorProto, helper, numpy_helper
from test_verify import foreign

from gelu_fast import forms as formulas
from gelu_fast.export import cut, export_ffn, verify
from gelu_fast.export.activation import LENGTHS, canonical, deviates, edge_values
from gelu_fast.export.forms import FORMS
from gelu_fast.export.reference import gelu64
from gelu_fast.export.runtime import Runner, prepare

bfloat16 = pytest.importorskip("ml_dtypes").bfloat16


def with_chain(weights, nodes, constants=()):
    """The block of others with its Gelu replaced by nodes from h to g."""
    model = foreign(weights)
    gelu = next(node for node in model.graph.node if node.op_type == "Gelu")
    at = list(model.graph.node).index(gelu)
    model.graph.node.remove(gelu)
    for index, (op, inputs, output) in enumerate(nodes):
        model.graph.node.insert(at + index, helper.make_node(op, inputs, [output]))
    model.graph.initializer.extend(numpy_helper.from_array(np.float32(v), k) for k, v in dict(constants).items())
    return model


EXACT = [("Div", ["h", "root"], "d"), ("Erf", ["d"], "e"), ("Add", ["e", "one"], "s"), ("Mul", ["h", "s"], "p"),
         ("Mul", ["p", "half"], "g")]  # fmt: skip
CONSTANTS = {"root": 2**0.5, "one": 1, "half": 0.5}


def test_what_is_fed():
    values = edge_values(np.float32)
    for wanted in (math.inf, -math.inf, 65504, -65504, -13.24, -5.5, -6, -8, 3e19, -3e19, -2.2):
        assert np.float32(wanted) in values
    assert np.isnan(values).any()
    assert (values == 0).sum() == 2
    assert np.signbit(values[values == 0]).sum() == 1
    assert (np.abs(values[values != 0]) < np.finfo(np.float32).smallest_normal).sum() == 4
    half = edge_values(np.float16)
    assert np.isinf(half).sum() == 2
    assert np.finfo(np.float16).max in half
    assert set(LENGTHS) >= {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33}


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("formula", formulas.FORMS)
def test_right_values_do_not_deviate(dtype, formula):
    """Also after ½x·(1 + erf), but only where it still has a digit."""
    values = np.concatenate([edge_values(dtype), np.linspace(-8, 8, 2049).astype(dtype)])
    with np.errstate(over="ignore", under="ignore"):
        right = gelu64(values.astype(np.float64), formula).astype(dtype)
    assert not deviates(right, values, formula).any()
    for other in set(formulas.FORMS) - {formula}:
        with np.errstate(over="ignore", under="ignore"):
            wrong = gelu64(values.astype(np.float64), other).astype(dtype)
        assert deviates(wrong, values, formula, tail=False).any()


@pytest.mark.parametrize(
    ("x", "y", "wrong"),
    [
        (-math.inf, math.nan, True), (-math.inf, -0.0, False), (-math.inf, 0.0, False), (-math.inf, -1.0, True),
        (math.inf, math.inf, False), (math.inf, 65504, True), (math.nan, math.nan, False), (math.nan, 0.0, True),
        (0.0, 0.0, False), (0.0, -0.0, True), (-0.0, 0.0, True), (-5.5, -1.639e-07, True), (-5.5, -1.044e-07, False),
        (-6.0, -0.0, True), (-13.24, -0.0, False), (-14.5, -0.0, False), (-1.0, -0.15865, True),
        (-1.0, -0.15865526, False), (3e38, math.inf, True), (1e-40, 5e-41, False), (1e-40, 0.0, False),
    ],
)  # fmt: skip
def test_deviates(x, y, wrong):
    assert deviates(np.array([y], np.float32), np.array([x], np.float32), "none").item() is wrong


def test_the_runtime_is_blamed_for_its_own(tmp_path):
    report = export_ffn(arrays(), tmp_path / "m.onnx", form="native")
    assert report.passed
    assert report.activations == ("hidden",)
    assert {edge.x for edge in report.edges} == {-math.inf, -5.5, -6.0, -8.0}
    assert {edge.cause for edge in report.edges} == {"runtime"}
    assert all(edge.levels == ("disable", "all") for edge in report.edges)
    (remark,) = report.remarks
    assert remark.startswith("runtime: onnxruntime")
    assert "gelu(-inf) = nan, not -0" in remark
    assert remark.endswith("form='primitive' is right there")
    assert remark in str(report)


@pytest.mark.parametrize("formula", formulas.FORMS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_primitive_form_has_no_edge(tmp_path, formula, dtype):
    report = export_ffn(arrays(), tmp_path / "m.onnx", form="primitive", approximate=formula, dtype=dtype)
    assert report.passed
    assert report.edges == ()
    assert report.activations == ("hidden",)
    assert report.remarks == ()


def test_float64_agrees_to_1e_14():
    x = np.concatenate([np.linspace(-40, 40, 20001), edge_values(np.float64)])
    like = helper.make_model(
        helper.make_graph([], "g", [], []), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    for formula in formulas.FORMS:
        run = Runner(prepare(canonical(formula, "primitive", "float64", "float64", like), None, None))
        finite = x[np.isfinite(x) & (np.abs(x) < 50)]
        assert np.abs(run(finite) - gelu64(finite, formula)).max() <= 1e-14


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_every_block_is_cut_out(tmp_path, form):
    from test_verify_wrong import stack

    report = export_ffn(stack(2), tmp_path / "m.onnx", form=form)
    assert report.activations == ("layers.0.hidden", "layers.1.hidden")
    assert report.passed


def test_the_model_is_blamed_for_its_own():
    """A chain that is right on all that a Linear lets through, and wrong at one edge."""
    weights = arrays(4, 8)
    assert verify(with_chain(weights, EXACT, CONSTANTS), weights).passed
    lowest = [("Max", ["h", "low"], "c"), *[(op, ["c" if i == "h" else i for i in x], y) for op, x, y in EXACT]]
    report = verify(with_chain(weights, lowest, {**CONSTANTS, "low": -7.0}), weights)
    assert report.passed is True  # what it changes is 0 in onnxruntime anyhow, and -inf became right
    assert -math.inf not in {edge.x for edge in report.edges}
    highest = [("Min", ["h", "high"], "c"), *[(op, ["c" if i == "h" else i for i in x], y) for op, x, y in EXACT]]
    report = verify(with_chain(weights, highest, {**CONSTANTS, "high": 1e6}), weights)
    assert report.passed is False
    assert any("activation behind 'h': gelu(inf) = 1e+06, not inf" in text for text in report.failures)
    assert "model" in {edge.cause for edge in report.edges}


def test_an_activation_that_is_no_gelu():
    weights = arrays(4, 8)
    report = verify(with_chain(weights, [("Relu", ["h"], "g")]), weights)
    assert report.passed is False
    assert any(text.startswith("activation behind 'h' is no GELU: it gives 0 at -0.75") for text in report.failures)


def test_a_chain_of_others_with_the_wrong_formula_is_named():
    weights = arrays(4, 8)
    quick = [("Mul", ["h", "slope"], "s"), ("Sigmoid", ["s"], "t"), ("Mul", ["h", "t"], "g")]
    report = verify(with_chain(weights, quick, {"slope": 1.702}), weights)
    assert "activation behind 'h' computes the 'quick' formula, expected 'none'" in report.failures
    assert verify(with_chain(weights, quick, {"slope": 1.702}), weights, approximate="quick").passed


def test_cut_takes_functions_and_constants_and_refuses_what_needs_more():
    body = [helper.make_node("Gelu", ["a"], ["b"])]
    function = helper.make_function("local", "Act", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Act", ["h"], ["f"], domain="local"),
        helper.make_node("Mul", ["f", "one"], ["g"]),
        helper.make_node("Add", ["g", "x"], ["residual"]),
        helper.make_node("MatMul", ["g", "w"], ["y"]),
    ]
    kept = [numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"), numpy_helper.from_array(np.float32(1), "one")]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, ["n", 4])], [value("y", 1, ["n", 4])], kept)
    model = helper.make_model(graph, functions=[function], ir_version=9,
                              opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("local", 1)])  # fmt: skip
    assert cut.find(model) == [("h", "g")]
    part = cut.between(model, "h", "g", TensorProto.FLOAT)
    onnx.checker.check_model(part, full_check=True)
    assert [node.op_type for node in part.graph.node] == ["Act", "Mul"]
    x = np.array([-1, 0, 2], np.float32)
    np.testing.assert_allclose(Runner(prepare(part, None, None))(x), gelu64(x.astype(float), "none"), atol=1e-6)
    assert cut.between(model, "g", "residual", TensorProto.FLOAT) is None
    assert cut.between(model, "y", "g", TensorProto.FLOAT) is None
