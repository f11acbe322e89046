"""`inspect` finds GELU by value, in any spelling, and nothing else."""

import numpy as np
import onnx
import pytest
import spellings
from models_of_others import optimised
from onnx import helper, numpy_helper, parser
from spellings import ALL, EXACT, OTHERS, QUICK, SCALARS, TANH, build
from test_forms import NAMED, activation

from gelu_fast.export import inspect


def only(model, **options):
    (site,) = inspect(model, **options)
    return site


@pytest.mark.parametrize(("formula", "name", "text"), ALL)
@pytest.mark.parametrize("constants", ["initializers", "nodes", "inputs"])
def test_chains(formula, name, text, constants):
    site = only(build(text, constants=constants))
    assert (site.formula, site.dtype, site.scope) == (formula, "float32", "main graph")
    assert (site.input, site.output) == ("h", "a")
    assert site.error < 1e-6
    assert site.spelling.split()[-1] == text.split(" = ")[-1].split("(")[0]
    overridable = [text for text in site.remarks if "input with a default" in text]
    assert bool(overridable) == (constants == "inputs")


@pytest.mark.parametrize(("formula", "name", "text"), ALL)
def test_constants_rounded_to_float16(formula, name, text):
    site = only(build(text, "float16"))
    assert (site.formula, site.dtype) == (formula, "float16")


@pytest.mark.parametrize(("formula", "name", "text"), ALL)
def test_constants_rounded_to_bfloat16(formula, name, text, monkeypatch):
    """As far off as exact and tanh are apart."""
    bits = np.array(list(SCALARS.values()), np.float32).view(np.uint32)
    rounded = (bits + 0x8000 & 0xFFFF0000).view(np.float32)
    monkeypatch.setattr(spellings, "SCALARS", dict(zip(SCALARS, rounded, strict=True)))
    site = only(build(text))
    assert site.formula == formula
    assert bool(site.remarks) == (name != "function body")


@pytest.mark.parametrize("slope", [1.0, 1.6, 1.69, 1.71, 1.8])
def test_another_slope_is_no_quick_gelu(slope, monkeypatch):
    monkeypatch.setitem(SCALARS, "quick", slope)
    assert inspect(build(QUICK["sigmoid"])) == []


@pytest.mark.parametrize(("formula", "name", "text"), ALL)
def test_casts_that_do_nothing_stay_outside(formula, name, text):
    """Keras writes them around every operator."""
    model = build(text, before="m = MatMul(x, w)  h = Cast<to = 1>(m)", after="b = Cast<to = 1>(a)  y = MatMul(b, w)")
    site = only(model)
    assert (site.formula, site.input, site.output) == (formula, "h", "a")


@pytest.mark.parametrize(("formula", "name", "text"), ALL)
def test_casts_inside(formula, name, text):
    site = only(build(text, "float16", compute="float32"))
    assert (site.formula, site.dtype) == (formula, "float16")
    assert (site.input, site.output) == ("h0", "a")
    assert site.spelling.startswith("Cast ")


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_what_only_looks_like_one(text):
    assert inspect(build(text)) == []


@pytest.mark.parametrize(("form", "formula"), NAMED)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_our_own_forms(form, formula, dtype):
    site = only(activation(form, formula, dtype))
    assert (site.formula, site.dtype, site.input, site.output) == (formula, dtype, "x", "y")
    assert ("function gelu_fast" in site.spelling) == (form == "function")


@pytest.mark.parametrize(("line", "formula", "dtype"), [
    ("a = Gelu(h)", "none", "float32"),
    ('a = Gelu<approximate = "tanh">(h)', "tanh", "float16"),
    ("a = com.microsoft.Gelu(h)", "none", "float32"),
    ("a = com.microsoft.FastGelu(h)", "tanh", "float32"),
    ("a = com.microsoft.FastGelu(h, bias)", "tanh", "float32"),
    ("a = com.microsoft.BiasGelu(h, bias)", "none", "float32"),
    ("a = com.microsoft.QuickGelu<alpha = 1.702>(h)", "quick", "float32"),
    ("a = com.microsoft.QuickGelu(h)", "quick", "float32"),
])  # fmt: skip
def test_operators(line, formula, dtype):
    model = build(line, dtype, 20)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4, dtype), "bias"))
    site = only(model)
    assert (site.formula, site.dtype) == (formula, dtype)
    assert site.spelling in line


def test_silu_as_quick_gelu_is_none():
    assert inspect(build("a = com.microsoft.QuickGelu<alpha = 1.0>(h)")) == []


def test_shared_constants_and_several_sites():
    second = "l = Mul(v, slope)  c = Mul(v, cubic)  d = Mul(v, c)  i = Add(d, one)  u = Mul(l, i)  th = Tanh(u)  " \
             "p = Add(th, one)  q = Mul(v, half)  b = Mul(q, p)"  # fmt: skip
    model = build(f"{EXACT['div, half last']}  v = MatMul(a, w)  {second}", after="y = MatMul(b, w)")
    sites = inspect(model)
    assert [site.formula for site in sites] == ["none", "tanh"]
    assert [site.output for site in sites] == ["a", "b"]


def test_an_intermediate_used_elsewhere_is_told():
    model = build(EXACT["div, half last"], after="y0 = MatMul(a, w)  y = Add(y0, e)")
    assert only(model).remarks == ("'e', inside of it, is used elsewhere",)


def test_subgraphs():
    inner = parser.parse_graph("then () => (float[n, 4] a) { t = Div(h, root)  e = Erf(t)  s = Add(e, one)  "
                               "g = Mul(h, s)  a = Mul(g, half) }")  # fmt: skip
    other = parser.parse_graph('else () => (float[n, 4] b) { b = Gelu<approximate = "tanh">(h) }')
    choose = helper.make_node("If", ["yes"], ["a"], name="choice", then_branch=inner, else_branch=other)
    model = build("a = Relu(h)", opset=20)
    model.graph.node[1].CopyFrom(choose)
    scalars = {"root": np.sqrt(2), "one": 1, "half": 0.5}
    model.graph.initializer.extend(numpy_helper.from_array(np.float32(v), k) for k, v in scalars.items())
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    onnx.checker.check_model(model, full_check=True)
    sites = {site.scope: site for site in inspect(model)}
    assert {scope: site.formula for scope, site in sites.items()} == {
        "main graph / If choice, then_branch": "none", "main graph / If choice, else_branch": "tanh",
    }  # fmt: skip


def test_functions():
    """One that is a GELU is found where it is called; one that holds a GELU, inside."""
    body = [parser.parse_node(line.strip()) for line in EXACT["function body"].split("  ") if line.strip()]
    scalars = [helper.make_node("Constant", [], [n], value_float=v) for n, v in (("one", 1.0), ("half", 0.5))]
    imports = [helper.make_opsetid("", 17)]
    gelu = helper.make_function("own", "MyGelu", ["h"], ["a"], [*scalars, *body], imports)
    more = [helper.make_node("MatMul", ["a", "w"], ["out"])]
    layer = helper.make_function("own", "Layer", ["h", "w"], ["out"], [*scalars, *body, *more], imports)
    model = build("u = own.MyGelu(h)  a = own.Layer(u, w)")
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend([gelu, layer])
    sites = inspect(model)
    assert [(s.scope, s.spelling.split()[0], s.formula) for s in sites] == [
        ("main graph", "function", "none"), ("function own.Layer", "Div", "none"),
    ]  # fmt: skip


def test_what_runs_and_what_is_fused():
    fused = only(build(EXACT["div, half last"]))
    assert (fused.fused_on_target, fused.runs) == (True, ("com.microsoft.Gelu",))
    plain = only(build(EXACT["half in the middle"]))
    assert plain.fused_on_target is False
    assert plain.runs == ("Mul", "Erf", "Add", "Mul", "Mul")
    native = build("a = Gelu(h)", opset=20)
    assert only(native).fused_on_target is True
    assert only(native, target="onnxruntime>=1.17").fused_on_target is False
    assert only(native, target="onnxruntime==1.20").fused_on_target is True
    erfc = only(build(EXACT["erfc"]))
    assert (erfc.runs, erfc.fused_on_target) == (None, False)
    assert "no runtime loads this model" in "; ".join(erfc.remarks)


def test_not_fused_where_it_is_an_output_or_used_elsewhere():
    """What onnxruntime does with the whole model, not with the chain alone."""
    for text, after in (
        (TANH["pow"], "y = Identity(a)"),
        (EXACT["div, half last"], "y = Add(a, e)"),
        (TANH["pow"], "y = Add(a, u)"),
    ):
        model = build(text, after=after)
        if after == "y = Identity(a)":
            del model.graph.node[-1]
            model.graph.output[0].name = "a"
        kept = [node.op_type for node in optimised(model).graph.node]
        assert not {"Gelu", "FastGelu"} & set(kept)
        assert only(model).fused_on_target is False


def test_types_behind_operators_of_onnxruntime():
    text = "m = com.microsoft.FusedMatMul<alpha = 2.0>(x, w)  b = Add(m, one)  h = com.microsoft.Gelu(b)  " \
           "a = com.microsoft.Gelu(h)"  # fmt: skip
    sites = inspect(build(text, before="z = Relu(x)", after="y = MatMul(a, w)"))
    assert [site.dtype for site in sites] == ["float32", "float32"]


def test_from_a_file(tmp_path):
    model = build(TANH["pow"])
    onnx.save(model, tmp_path / "m.onnx")
    assert inspect(tmp_path / "m.onnx") == inspect(model)
