"""The cases of shared/cases/onnx.md, one test each, by number; the modules' own tests go further."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from blocks import arrays
from onnx import helper, numpy_helper
from spellings import EXACT, TANH, build
from test_export import by_hand, run
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

from gelu_fast.export import export_ffn, inspect, quantize, rewrite, verify

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


@pytest.mark.parametrize("target", ["opset 17", "opset 20", None])
def test_case_1_float16_kernels(tmp_path, target):
    report = export_ffn(arrays(), tmp_path / "m.onnx", dtype="float16", target=target)
    assert report.passed
    assert [level.name for level in report.levels] == ["disable", "basic", "extended", "all"]
    assert all(level.casts for level in report.levels)
    x = np.ones((3, report.features[0]), np.float16)
    for level in LEVELS:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(str(report.path), options, providers=["CPUExecutionProvider"])
        assert session.run(None, {"x": x})[0].dtype == np.float16


@pytest.mark.parametrize("approximate", ["none", "tanh", "quick"])
def test_case_2_float64_exact(tmp_path, approximate):
    weights = arrays(8, 20, 5, dtype=np.float64)
    report = export_ffn(weights, tmp_path / "m.onnx", approximate=approximate)
    assert report.form == "primitive"
    x = np.random.default_rng(0).standard_normal((6, 8))
    np.testing.assert_allclose(run(report.path, x), by_hand(weights, x, approximate), rtol=0, atol=1e-14)


def test_case_3_ir_too_new(tmp_path):
    """That they load there, tests/test_deploy.py shows by loading them."""
    report = export_ffn(arrays(), tmp_path / "m.onnx", target="onnxruntime>=1.17")
    assert report.opset <= 20
    assert report.ir_version <= 9


@pytest.mark.parametrize(("formula", "texts"), [("none", EXACT), ("tanh", TANH)])
def test_case_4_no_fusion(formula, texts):
    for text in texts.values():
        assert [site.formula for site in inspect(build(text))] == [formula]
        (site,) = inspect(rewrite(build(text), "fusable", verify=False))
        assert site.fused_on_target


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize(
    ("dims", "kept"), [(("batch",), {"Gemm", "Gelu"}), (("batch", "seq"), {"MatMul", "BiasGelu", "Add"})]
)
def test_case_5_lost_bias_gelu(tmp_path, opset, dims, kept):
    report = export_ffn(arrays(), tmp_path / "m.onnx", target=f"opset {opset}", dims=dims, timing=True)
    assert set(report.operators) == kept
    assert {line.name for line in report.latency} >= {"fusable", "contrib", "function", "primitive"}


def test_case_6_file_moved_alone(tmp_path):
    assert len(export_ffn(arrays(), tmp_path / "one.onnx").files) == 1
    report = export_ffn(arrays(), tmp_path / "m.onnx", external_data=True)
    report.files[1].unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(report.files[1].name)):
        verify(report.path, arrays())


def test_case_7_static_batch(tmp_path):
    report = export_ffn(arrays(6, 10, 3), tmp_path / "m.onnx")
    assert {0, 1, 7} <= {shape[0] for shape in report.batches}
    for rows in (1, 7, 0):
        assert run(report.path, np.ones((rows, 6), np.float32)).shape == (rows, 3)


def test_case_8_tied_weights(tmp_path):
    w1, b1, _, b2 = arrays(16, 64, 16)
    report = export_ffn([(w1, b1, w1.T, b2), (w1, b1, w1.T.copy(), b2)], tmp_path / "m.onnx")
    assert report.passed
    assert [t.name for t in onnx.load(report.path).graph.initializer if len(t.dims) == 2] == ["layers.0.w1"]
    found = quantize(report.path, tmp_path / "q.onnx", method="dynamic")
    assert found.size < report.size


def test_case_9_quantise_gemm(tmp_path):
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((24, 16)).astype(np.float32), "w")
    ends = [helper.make_tensor_value_info(n, 1, ["n", k]) for n, k in (("x", 16), ("y", 24))]
    gemm = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    graph = helper.make_graph([gemm], "g", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", method="dynamic")
    x = rng.standard_normal((5, 16)).astype(np.float32)
    a, b = run(tmp_path / "m.onnx", x), run(tmp_path / "q.onnx", x)
    assert 0 < np.abs(a - b).max() < 0.05 * np.abs(a).max()


def test_case_10_transposes(tmp_path):
    weights = arrays(16, 16, 16)
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    for form in ("native", "fusable", "primitive"):
        export_ffn(weights, tmp_path / "m.onnx", form=form, overwrite=True)
        np.testing.assert_allclose(run(tmp_path / "m.onnx", x), by_hand(weights, x, "none"), rtol=0, atol=2e-6)


def test_case_11_mixed_dtypes(tmp_path):
    w1, b1, w2, b2 = arrays()
    with pytest.raises(TypeError, match="mixed dtypes: w1 is float64, b1 is float32"):
        export_ffn((w1.astype(np.float64), b1, w2, b2), tmp_path / "m.onnx")


@pytest.mark.parametrize(("approximate", "at_minus_one"), [("none", -0.158655), ("tanh", -0.158808)])
def test_case_12_wrong_formula(tmp_path, approximate, at_minus_one):
    """A block that is its activation: w1 = w2 = 1."""
    one = np.ones((1, 1), np.float32)
    report = export_ffn((one, None, one, None), tmp_path / "m.onnx", approximate=approximate)
    stated = {entry.key: entry.value for entry in onnx.load(report.path).metadata_props}
    assert stated["gelu_fast.formula"] == report.formula == approximate
    assert run(report.path, -one)[0, 0] == pytest.approx(at_minus_one, abs=2e-6)
    other = {"none": "tanh", "tanh": "none"}[approximate]
    assert not verify(report.path, (one, None, one, None), approximate=other).passed


def test_case_13_old_spelling(tmp_path):
    mlp = GPT2MLP(48, GPT2Config(n_embd=16)).eval()
    report = export_ffn(mlp, tmp_path / "m.onnx")
    assert (report.formula, report.features) == ("tanh", (16, 48, 16))
    assert report.passed


def test_case_14_non_finite_weights(tmp_path):
    w1, b1, w2, b2 = arrays()
    w2[1, 2] = np.inf
    with pytest.raises(ValueError, match=r"w2: expected finite weights, got inf at \(1, 2\)"):
        export_ffn((w1, b1, w2, b2), tmp_path / "m.onnx")
    assert export_ffn((w1, b1, w2, b2), tmp_path / "m.onnx", allow_nonfinite=True).path.is_file()


def test_every_case_has_a_test():
    found = {int(n) for n in re.findall(r"^def test_case_(\d+)_", Path(__file__).read_text(), re.M)}
    assert found == set(range(1, 15))
