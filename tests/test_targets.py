"""Which form, opset and IR version a target gets, and what is refused with what would do."""

import re

import onnxruntime
import pytest

from gelu_fast.export import forms, targets

ARGUMENTS = {"form": "auto", "formula": "none", "dtype": "float32"}


def resolve(target, **others):
    return targets.resolve(target, **{**ARGUMENTS, **others})


@pytest.mark.parametrize(("target", "form", "opset", "ir"), [
    ("onnxruntime>=1.17", "fusable", 17, 8),  # 1.17 runs Gelu as its function body
    ("onnxruntime==1.17.3", "fusable", 17, 8),
    ("onnxruntime==1.18", "fusable", 17, 8),  # not measured: as the release before
    ("opset 17", "fusable", 17, 8),
    ("opset 13", "fusable", 13, 8),
    ("opset 20", "native", 20, 9),
    ("opset 21", "native", 21, 10),
])  # fmt: skip
def test_auto(target, form, opset, ir):
    plan = resolve(target)
    assert (plan.form, plan.opset, plan.ir_version, plan.compute) == (form, opset, ir, "float32")
    assert plan.target == target
    assert plan.why


def test_blanks_do_not_matter():
    assert resolve(" onnxruntime >= 1.17 ") == resolve("onnxruntime>=1.17")


@pytest.mark.parametrize("target", [
    None, "onnxruntime", "onnxruntime>=1.17", "onnxruntime==1.20.1", "onnxruntime-web", "opset 20"
])  # fmt: skip
@pytest.mark.parametrize("formula", ["none", "tanh", "quick"])
@pytest.mark.parametrize("dtype", targets.DTYPES)
def test_auto_is_never_refused(target, formula, dtype):
    plan = resolve(target, formula=formula, dtype=dtype)
    assert plan.form in forms.FORMS
    assert (plan.form == "primitive") == (dtype == "float64")
    for row in plan.runtimes:
        assert plan.opset <= row.opset
        assert plan.ir_version <= row.ir_version


def test_float16_is_computed_in_float32_where_the_runtime_is_known():
    assert resolve("onnxruntime>=1.17", dtype="float16").compute == "float32"
    assert resolve("opset 20", dtype="float16").compute == "float16"


def test_the_installed_runtime():
    assert resolve(None).target == f"onnxruntime=={onnxruntime.__version__}"


@pytest.mark.parametrize(("target", "others", "said"), [
    ("opset 19", {"form": "native"}, "'native' needs opset 20, target is 'opset 19'; 'fusable', 'contrib', 'function'"),
    ("opset 14", {"form": "function"}, "'function' needs opset 15"),
    (None, {"form": "native", "formula": "quick"}, "'native' has no quick formula"),
    (None, {"form": "fusable", "dtype": "float64"}, "no float64 kernel for Erf.*'primitive' works"),
    ("onnxruntime==1.16", {}, "expected onnxruntime 1.17 or later, got 1.16"),
    ("onnxruntime>=0.9", {}, "expected onnxruntime 1.17 or later"),
    ("opset 12", {}, "expected an opset from 13 to"),
    ("opset 900", {}, "expected an opset from 13 to"),
    ("tensorrt", {}, "target: expected 'onnxruntime>=1.17'"),
    ("onnxruntime>1.17", {}, "target: expected 'onnxruntime>=1.17'"),
    (None, {"form": "fast"}, "form: expected 'auto', 'native'"),
])  # fmt: skip
def test_refusals(target, others, said):
    with pytest.raises(ValueError, match=said):
        resolve(target, **others)


def test_a_target_of_another_kind():
    with pytest.raises(TypeError, match=re.escape("target: expected None or text such as 'onnxruntime>=1.17', got 17")):
        targets.check(17, "auto")


def test_available():
    assert set(targets.available("opset 17", "none", "float32")) == {"fusable", "contrib", "function", "primitive"}
    assert set(targets.available(None, "tanh", "float64")) == {"primitive"}
    assert set(targets.available(None, "tanh", "float32")) == set(forms.FORMS)
