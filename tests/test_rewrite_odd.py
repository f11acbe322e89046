"""`rewrite` on what a breaker found: data of two models, clamps, GELU of GELU, names that are taken."""

import numpy as np
import pytest
from blocks import arrays
from onnx import helper, numpy_helper
from spellings import EXACT, QUICK, TANH, build
from test_rewrite import X, by_hand, infer

from gelu_fast.export import export_ffn, inspect, rewrite, verify
from gelu_fast.export.rewrite import rewrite_file, rewrite_with_report


def test_data_is_nobody_elses(tmp_path):
    """A model rewritten in its place keeps its weights; one beside it keeps them when the first is made anew."""
    first, second = arrays(), arrays(seed=1)
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    export_ffn(first, a, external_data=True)
    rewrite_file(a, b, "fusable")
    rewrite_file(a, a, "primitive", overwrite=True)
    assert verify(a, first).passed
    export_ffn(second, a, external_data=True, overwrite=True)
    assert verify(b, first).passed
    assert verify(a, second).passed
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize("form", ["native", "fusable", "primitive"])
@pytest.mark.parametrize(("before", "after"), [
    ("m = MatMul(x, w)  h = Min(m, three)", "y = MatMul(a, w)"),
    ("h = MatMul(x, w)", "last = Min(a, three)  y = MatMul(last, w)"),
    ("h = MatMul(x, w)", "last = Max(a, minus_quick)  y = MatMul(last, w)"),
    ("h = MatMul(x, w)", "last = Add(a, tiny)  y = MatMul(last, w)"),
])  # fmt: skip
def test_a_clamp_or_an_addition_beside_it_stays(before, after, form):
    """None of them shows for ordinary numbers."""
    for text in (EXACT["div, half last"], QUICK["exp"], TANH["pow"]):
        if form == "native" and text == QUICK["exp"]:
            continue
        model = build(text, before=before.replace("three", "far"), after=after.replace("three", "far"))
        kept = [n.op_type for n in model.graph.node if n.op_type in ("Min", "Max")]
        made = rewrite(model, form)
        left = [n.op_type for n in made.graph.node if n.op_type in ("Min", "Max")]
        # The primitive form has a Min of its own; where exp is the core, what changes no value belongs to it.
        assert left == kept or form == "primitive" or text == QUICK["exp"]
        x = 300 * X
        np.testing.assert_allclose(infer(made, x), infer(model, x), rtol=2e-6, atol=1e-3)
        np.testing.assert_allclose(infer(made, 0 * X), infer(model, 0 * X), rtol=0, atol=1e-9)


@pytest.mark.parametrize("form", ["native", "fusable", "contrib", "function", "primitive"])
def test_a_gelu_of_a_gelu(form):
    model = build("b = Gelu(h)  a = Gelu(b)", opset=20)
    made = rewrite(model, form)
    assert len(inspect(made)) == 2
    np.testing.assert_allclose(infer(made), infer(model), rtol=0, atol=5e-6)


def test_the_standard_domain_spelled_out():
    for goal in (None, 14):
        model = build(EXACT["half in the middle"])
        model.opset_import[0].domain = "ai.onnx"
        made = rewrite(model, "fusable", opset=goal)
        np.testing.assert_allclose(infer(made), by_hand("none"), rtol=0, atol=5e-6)


def test_float64_around_float32_stays_so():
    model = build(EXACT["div, half last"], "float64", compute="float32")
    made = rewrite(model, "native")
    assert [n.op_type for n in made.graph.node].count("Cast") == 2


def test_a_function_of_our_name_that_is_another():
    model = build(EXACT["div, half last"], after="n = gelu_fast.Gelu(a)  y = MatMul(n, w)")
    body = [helper.make_node("Neg", ["x"], ["y"])]
    model.functions.append(helper.make_function("gelu_fast", "Gelu", ["x"], ["y"], body, [helper.make_opsetid("", 17)]))
    model.opset_import.append(helper.make_opsetid("gelu_fast", 1))
    made = rewrite(model, "function")
    assert sorted(f.name for f in made.functions) == ["Gelu", "Gelu_2"]
    np.testing.assert_allclose(infer(made), infer(model), rtol=0, atol=1e-6)


def test_what_nothing_can_run_is_not_rewritten_unless_asked():
    model = build(EXACT["div, half last"], before="m = my.Custom(x)  h = MatMul(m, w)")
    model.opset_import.append(helper.make_opsetid("my", 1))
    with pytest.raises(ValueError, match="nothing could run both models"):
        rewrite(model, "native")
    assert len(inspect(rewrite(model, "native", verify=False))) == 1


def test_sparse_initialisers_are_refused():
    model = build(EXACT["div, half last"])
    values, indices = numpy_helper.from_array(np.float32([3]), "s"), numpy_helper.from_array(np.int64([2]), "i")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    with pytest.raises(ValueError, match="sparse initialisers are not served: 's'"):
        rewrite(model, "native")


def test_constants_that_raise_the_rank():
    model = build(EXACT["div, half last"])
    for tensor in model.graph.initializer:
        if tensor.name != "w":
            tensor.dims.extend([1, 1, 1])
    assert inspect(model) == []


def test_what_the_converter_forgets_is_put_back():
    model = build(EXACT["div, half last"])
    model.graph.node[0].metadata_props.add(key="k", value="v")
    model.graph.initializer[-1].doc_string = "weights"
    model.training_info.add().algorithm.name = "a"
    for made in (rewrite(model, "native"), rewrite(model, "fusable")):
        assert [p.value for p in made.graph.node[0].metadata_props] == ["v"]
        assert {t.name: t.doc_string for t in made.graph.initializer}["w"] == "weights"
        assert len(made.training_info) == 1


@pytest.mark.parametrize("form", ["native", "fusable", "contrib", "function", "primitive"])
def test_two_that_share_an_erf(form):
    text = EXACT["div, half last"] + "  k = Mul(h, half)  z = Mul(k, s)"
    model = build(text, after="b = MatMul(a, w)  c = MatMul(z, w)  y = Sub(b, c)")
    assert [(site.input, site.output) for site in inspect(model)] == [("h", "a"), ("h", "z")]
    done = rewrite_with_report(model, form)
    assert not any(node.op_type == "Erf" for node in done.model.graph.node) or form in ("fusable", "function")
    assert len(inspect(done.model)) == 2
    np.testing.assert_allclose(infer(done.model), infer(model), rtol=0, atol=2e-6)
