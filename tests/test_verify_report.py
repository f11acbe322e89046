"""What the report says: levels, kernels, Casts, dtypes, latency, JSON."""

import json

import numpy as np
import onnx
import pytest
from blocks import arrays
from test_verify import foreign

from gelu_fast.export import export_ffn, verify
from gelu_fast.export.loading import load
from gelu_fast.export.report import VerifyReport
from gelu_fast.export.sources import read_source
from gelu_fast.export.timing import BATCHES
from gelu_fast.export.verify import check
from gelu_fast.export.widened import float32_copy


@pytest.mark.parametrize("dims", [("batch",), ("batch", "seq")])
def test_levels(tmp_path, dims):
    report = export_ffn(arrays(), tmp_path / "m.onnx", dims=dims, form="native")
    assert [level.name for level in report.levels] == ["disable", "basic", "extended", "all"]
    assert report.levels[0].operators == ("MatMul", "Add", "Gelu", "MatMul", "Add")
    assert report.operators == report.levels[-1].operators
    assert report.operators == (("Gemm", "Gelu", "Gemm") if len(dims) == 1 else ("MatMul", "BiasGelu", "MatMul", "Add"))
    assert report.levels[-1].kernels[0] == f"{report.operators[0]}(float32) CPUExecutionProvider"
    assert all(level.casts == () for level in report.levels)
    assert report.error_over_allowed == max(level.error_over_allowed for level in report.levels)
    assert report.verified_by == "onnxruntime"


@pytest.mark.parametrize("target", ["opset 17", "opset 20"])
def test_casts_of_float16(tmp_path, target):
    """Case 1: every level runs, and the report says where onnxruntime put Casts."""
    report = export_ffn(arrays(), tmp_path / "m.onnx", dtype="float16", target=target)
    assert report.passed
    assert report.dtype == "float16"
    for level in report.levels:
        assert "x: float16 → float32" in level.casts
        assert "y: float32 → float16" in level.casts
        assert all("Gemm(float16)" not in kernel for kernel in level.kernels)
    assert {"w1: float16 → float32", "b1: float16 → float32"} <= set(report.levels[0].casts)
    assert "casts put in" in str(report)


def test_casts_of_the_model_itself_are_not_counted(tmp_path):
    report = export_ffn(arrays(), tmp_path / "m.onnx", form="primitive")  # float64 between two Casts
    assert "Cast" in report.operators
    assert all(level.casts == () for level in report.levels)


@pytest.mark.parametrize("dims", [("batch",), ("batch", "seq")])
def test_float64(tmp_path, dims):
    report = export_ffn(arrays(dtype=np.float64), tmp_path / "m.onnx", dims=dims)
    assert report.passed
    assert (report.dtype, report.verified_by) == ("float64", "onnxruntime")
    assert report.max_abs_error < 1e-14
    report = verify(tmp_path / "m.onnx", arrays(dtype=np.float64, seed=1))
    assert report.passed is False


@pytest.mark.parametrize("formula", ["none", "tanh"])
def test_bfloat16_runs_as_a_copy(tmp_path, formula):
    report = export_ffn(arrays(), tmp_path / "m.onnx", dtype="bfloat16", approximate=formula)
    assert report.passed
    assert report.dtype == "bfloat16"
    assert "a copy with every node in float32 between Casts" in report.verified_by
    assert report.verified_by in str(report)


def test_the_copy_has_the_models_own_roundings(tmp_path):
    """Its values are those of onnx's reference evaluator, which computes bfloat16 node by node, but for sums' order."""
    export_ffn(arrays(8, 8), tmp_path / "m.onnx", dtype="bfloat16", form="native")
    model = onnx.load(tmp_path / "m.onnx")
    copy = float32_copy(model)
    onnx.checker.check_model(copy, full_check=True)
    import ml_dtypes
    from onnx.reference import ReferenceEvaluator

    x = np.random.default_rng(0).standard_normal((9, 8)).astype(ml_dtypes.bfloat16)
    got = ReferenceEvaluator(copy).run(None, {"x": x.astype(np.float32)})[0]
    assert (got == got.astype(ml_dtypes.bfloat16).astype(np.float32)).all()
    want = read_source(tuple(a.astype(ml_dtypes.bfloat16) for a in arrays(8, 8)))
    from gelu_fast.export.reference import plain

    np.testing.assert_allclose(got, plain(want, x, "none").astype(np.float32), rtol=2**-7, atol=2**-8)


def test_external_data_of_bfloat16_and_float32(tmp_path):
    for dtype in ("bfloat16", "float32"):
        report = export_ffn(arrays(), tmp_path / "m.onnx", dtype=dtype, external_data=True, overwrite=True)
        assert report.passed
        again = verify(tmp_path / "m.onnx", arrays())
        assert again.passed
        assert len(again.files) == 2
        assert again.manifest is not None


def test_timing(tmp_path):
    report = export_ffn(arrays(), tmp_path / "m.onnx", form="native", timing=True)
    names = [found.name for found in report.latency]
    assert names[0] == "native"
    assert set(names) == {"native", "fusable", "contrib", "function", "primitive", "torch"}
    for found in report.latency:
        assert tuple(found.microseconds) == BATCHES
        assert all(value > 0 for value in found.microseconds.values())
        assert bool(found.operators) is (found.name != "torch")
        assert f"time, {found.name}" in str(report)
    assert report.latency[0].operators == report.operators
    assert json.loads(report.to_json())["latency"][0]["microseconds"].keys() == {"1", "8", "128"}


def test_timing_of_others_and_of_bfloat16(tmp_path):
    report = verify(foreign(arrays()), arrays(), timing=True)
    assert [found.name for found in report.latency] == ["native", "torch"]
    given = check(
        load(foreign(arrays())), read_source(arrays()), "none", timing=True, others={"mine": foreign(arrays())}
    )
    assert [found.name for found in given.latency] == ["native", "mine", "torch"]
    export_ffn(arrays(), tmp_path / "m.onnx", dtype="bfloat16")
    report = verify(tmp_path / "m.onnx", arrays(), timing=True)
    assert [found.name for found in report.latency] == ["torch"]
    assert "no latency in onnxruntime: it has no bfloat16 kernels" in report.remarks
    assert verify(foreign(arrays()), arrays()).latency == ()


def test_json_holds_everything(tmp_path):
    report = export_ffn(arrays(), tmp_path / "m.onnx", form="native")
    found = json.loads(report.to_json())
    assert set(found) == set(VerifyReport.__dataclass_fields__)
    edge = next(edge for edge in found["edges"] if edge["x"] == "-inf")
    assert (edge["got"], edge["want"], edge["cause"]) == ("nan", -0.0, "runtime")
    assert found["levels"][3]["operators"] == ["Gemm", "Gelu", "Gemm"]
    assert found["hidden_features"] == [64]
    assert found["files"] == [str(tmp_path / "m.onnx")]


def test_block_that_overflows_everywhere_is_not_passed():
    weights = tuple(np.full_like(a, 3e38) for a in arrays(4, 8))
    report = verify(foreign(weights), weights)
    assert report.passed is False
    assert "the block overflows the dtype, or is nan, for every input tried" in report.failures


@pytest.mark.parametrize(("which", "value"), [(0, np.nan), (0, np.inf), (2, -np.inf), (3, np.nan)])
def test_weights_that_are_not_finite(tmp_path, which, value):
    weights = list(arrays())
    weights[which] = weights[which].copy()
    weights[which].flat[3] = value
    report = export_ffn(tuple(weights), tmp_path / "m.onnx", allow_nonfinite=True)
    assert report.passed
    assert any("the weights hold nan or infinities" in text for text in report.remarks)
    model = onnx.load(tmp_path / "m.onnx")
    for tensor in model.graph.initializer:
        values = np.nan_to_num(onnx.numpy_helper.to_array(tensor), posinf=0, neginf=0)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, tmp_path / "m.onnx")
    report = verify(tmp_path / "m.onnx", read_source(tuple(weights), allow_nonfinite=True))
    assert report.passed is False
    assert any("outputs are numbers, and should be nan or infinite" in text for text in report.failures)
    assert any(text.startswith(f"tensor '{['w1', 'b1', 'w2', 'b2'][which]}': 1 of") for text in report.failures)
