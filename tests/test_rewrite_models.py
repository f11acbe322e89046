"""`inspect` and `rewrite` on the models of others: every GELU found and no other, and the same results in every form.

A chosen set; GELU_FAST_LONG=1 takes all of them.
"""

import importlib.util
import os
from functools import cache

import models_of_others as others
import numpy as np
import onnx
import onnxruntime
import pytest
from models_without_gelu import without
from onnx.reference import ReferenceEvaluator

from gelu_fast.export import forms, inspect
from gelu_fast.export.inspection import FUSED
from gelu_fast.export.rewrite import rewrite, rewrite_with_report

LONG = os.environ.get("GELU_FAST_LONG") == "1"
# Each stands for others of the same exporter.
BLOCKS = [
    ("nn.GELU()", "legacy 14"), ("nn.GELU()", "dynamo 18"), ("nn.GELU() float16", "dynamo 23"),
    ("nn.GELU('tanh')", "legacy 17"), ("nn.GELU('tanh') float16", "legacy 17"), ("nn.GELU('tanh')", "dynamo 20"),
    ("x*sigmoid(1.702x)", "legacy 16"), ("x*sigmoid(1.702x) float16", "dynamo 21"), ("HF gelu_new", "legacy 17"),
    ("HF gelu_fast", "dynamo 18"), ("HF gelu_10", "legacy 17"), ("HF gelu_python float16", "legacy 17"),
    ("HF gelu_accurate", "legacy 16"),
]  # fmt: skip
MODELS = [
    ("HF BERT", "legacy 14"), ("HF GPT-2", "legacy 17"), ("HF ViT", "legacy 16"), ("HF CLIP vision", "legacy 17"),
    ("HF CLIP text", "dynamo 20"), ("HF GPT-2", "dynamo 18"),
]  # fmt: skip
_EXPORTERS = [f"legacy {n}" for n in others.LEGACY] + [f"dynamo {n}" for n in others.DYNAMO]
if LONG:
    _ACTIVATIONS = ["nn.GELU()", "nn.GELU('tanh')", "x*sigmoid(1.702x)", *(f"HF {name}" for name in others.HF)]
    BLOCKS = [(name + kind, by) for by in _EXPORTERS for name in _ACTIVATIONS for kind in ("", " float16")]
    MODELS = [(f"HF {name}", by) for name in ("BERT", "GPT-2", "ViT", "CLIP text", "CLIP vision") for by in _EXPORTERS]


@cache
def torch_models():
    return {(o.name, o.exporter): o for o in [*others.blocks(), *others.transformers()]}


@cache
def keras(backend):
    return {o.name: o for o in others.keras(backend)}


@cache
def onnx_cases():
    return others.onnx_cases()


def infer(model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), inputs, strict=True)))


def fused(model):
    """How many whole GELUs onnxruntime runs."""
    return sum(node.op_type in FUSED for node in others.optimised(model, "ORT_ENABLE_ALL").graph.node)


def where(sites):
    """In a function no type is told, and of some forms there are no constants to tell it."""
    return [(site.formula, site.scope.startswith("function") or site.dtype, site.input, site.output, site.scope)
            for site in sites]  # fmt: skip


def prove(other, *, refused=(), runs=True):
    """Rewrite a model to every form, and to opset 17; returns what was refused.

    refused: reasons that may be given, besides native's lack of a quick form. runs: whether onnxruntime takes it.
    """
    model = other.make()
    original = model.SerializeToString(deterministic=True)
    sites = inspect(model)
    assert tuple(site.formula for site in sites) == other.formulas
    assert all(site.dtype for site in sites)
    if runs:
        assert fused(model) == sum(bool(site.fused_on_target) for site in sites)
    outputs = {value.name for value in model.graph.output}
    said = {}
    for form, opset in [(form, None) for form in forms.FORMS] + [("fusable", 17)]:
        try:
            done = rewrite_with_report(model, form, opset=opset)
        except ValueError as error:
            said[form, opset] = str(error)
            if form == "native" and "quick" in other.formulas:
                assert said[form, opset].startswith("form: 'native' has no quick formula")
            else:
                assert any(reason in said[form, opset] for reason in refused), (form, opset, said)
            continue
        assert model.SerializeToString(deterministic=True) == original
        assert done.agreement.passed
        assert len(done.agreement.by) >= (2 if runs else 1), done.agreement.reason
        again = inspect(done.model)
        assert where(again) == where(sites)
        imports = {entry.domain: entry.version for entry in done.model.opset_import}
        assert imports[""] == done.new_opset
        assert "gelu_fast.standard" not in imports
        assert opset in (None, done.new_opset)
        assert fused(done.model) == sum(bool(site.fused_on_target) for site in again)
        if form != "primitive":  # onnxruntime fuses no chain of float16, and no tanh chain that is an output
            assert all(s.fused_on_target for s in again if s.dtype == "float32" and s.output not in outputs)
    return said


@pytest.mark.parametrize("name", BLOCKS, ids=", ".join)
def test_torch_blocks(name):
    prove(torch_models()[name])


@pytest.mark.parametrize("name", MODELS, ids=", ".join)
def test_hugging_face(name):
    prove(torch_models()[name])


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_keras(backend):
    """TensorFlow's exact form comes with Erfc: no checker and no runtime takes it before it is rewritten."""
    needed = ("torch",) if backend == "torch" else ("tensorflow", "tf2onnx")
    if any(importlib.util.find_spec(name) is None for name in needed):
        pytest.skip(f"runs where keras can export from {backend}: needs {' and '.join(needed)}")
    for other in keras(backend).values():
        model = other.make()
        broken = any(node.op_type == "Erfc" for node in model.graph.node)
        assert broken == (backend == "tensorflow" and "none" in other.formulas)
        if broken:
            with pytest.raises(onnx.checker.ValidationError, match="No Op registered for Erfc"):
                onnx.checker.check_model(model)
            with pytest.raises(Exception, match="Erfc"):
                infer(model, [])
        if not other.formulas:
            assert inspect(model) == []
            continue
        prove(other, runs=not broken)
        if broken:
            made = rewrite(model, "fusable")
            onnx.checker.check_model(made, full_check=True)
            x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
            assert infer(made, [x])[0].shape == (3, 8)


def test_the_cases_of_onnx():
    """In every form they give the outputs that onnx stores with them."""
    cases = [case for case in onnx_cases() if "_gelu_" in case.name]
    assert len(cases) >= 8
    for case in cases:
        formula = "tanh" if "tanh" in case.name else "none"
        prove(others.Other(case.name, "onnx", (formula,), lambda case=case: case.model))
        ((inputs, outputs),) = case.data_sets
        for form in forms.FORMS:
            made = rewrite(case.model, form)
            found = [infer(made, inputs)[0]]
            if form != "contrib":
                found.append(ReferenceEvaluator(made).run(None, {"x": inputs[0]})[0])
            for y in found:
                np.testing.assert_allclose(y, outputs[0], rtol=1e-3, atol=1e-6)  # stored with six digits


def test_no_other_case_of_onnx_has_a_gelu():
    """Softmax, Swish, Mish, LSTM, attention and all else, expanded into their functions' nodes too."""
    cases = [case for case in onnx_cases() if "gelu" not in case.name]
    assert len(cases) > 1500
    assert [case.name for case in cases if inspect(case.model)] == []


@pytest.mark.parametrize("kind", ["legacy 17", *(["legacy 14", "dynamo 18", "dynamo 20", "dynamo 23"] if LONG else [])])
def test_models_without(kind):
    exporter, opset = kind.split()
    found = {}
    for name, (module, x) in without().items():
        sites = inspect(others.by_torch(module, (x,), int(opset), dynamo=exporter == "dynamo"))
        if sites:
            found[name] = [(site.formula, site.spelling, site.error) for site in sites]
    assert found == {}


def test_functions_of_legacy_torch():
    whole, layer = others.as_functions()
    assert prove(whole) == {}
    said = prove(layer, refused=("'native' needs opset 20, and the function",))
    assert set(said) == {("native", None)}


@pytest.mark.parametrize("name", [BLOCKS[0], ("nn.GELU('tanh')", "legacy 17"), ("x*sigmoid(1.702x)", "legacy 17"),
                                  ("nn.GELU() float16", "legacy 17"), *MODELS], ids=", ".join)  # fmt: skip
def test_what_onnxruntime_saved(name):
    """With BiasGelu, FastGelu, QuickGelu, FusedMatMul, SkipLayerNormalization, whose types onnx can't infer."""
    (other,) = others.through_onnxruntime([torch_models()[name]])
    model = other.make()
    # onnxruntime writes LayerNormalization, an operator of opset 17, into models of 14 and 16 too.
    refused = [f"No Adapter From Version ${opset} for LayerNormalization" for opset in (14, 16)]
    prove(others.Other(other.name, other.exporter, other.formulas, lambda: model), refused=refused)
