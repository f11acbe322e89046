"""The table of all methods."""

import json

import numpy as np
import onnxruntime
import pytest
from quantize_models import IN, block, digest, gemm_model, inputs, save

from gelu_fast.export import export_ffn
from gelu_fast.export.quantize import quantize
from gelu_fast.export.quantize_compare import compare_methods
from gelu_fast.export.quantize_methods import METHODS


def test_every_method(tmp_path):
    source = tmp_path / "f.onnx"
    export_ffn(block(), source)
    before = digest(source)
    table = compare_methods(source, calibration=inputs(100), batches=(1, 3))
    assert [m.method for m in table.methods] == ["float", *METHODS]
    assert [path.name for path in tmp_path.iterdir()] == ["f.onnx"]
    assert digest(source) == before
    for m in table.methods:
        assert not m.reason
        assert set(m.microseconds) == {1, 3}
        assert all(t > 0 for t in m.microseconds.values())
        assert (m.errors is None) == (m.method == "float")
    # The same as one by one.
    for m in table.methods[1:]:
        one = quantize(source, tmp_path / f"{m.method}.onnx", method=m.method, calibration=inputs(100))
        assert (one.size, one.sha256) == (m.size, m.report.sha256)
        assert one.errors == m.errors
    content = json.loads(table.to_json())
    assert content["methods"][0]["size"] == source.stat().st_size
    lines = str(table).splitlines()
    assert len(lines) == 2 + len(METHODS)
    assert lines[0].split("  ")[0] == "method"
    assert "µs, batch 3" in lines[0]
    assert table.runtime.startswith(f"onnxruntime {onnxruntime.__version__}")


def test_reasons(tmp_path):
    """A method that can't be had stands there with its reason."""
    w1, b1, _, _ = block()
    source = tmp_path / "f.onnx"
    export_ffn((w1, b1, w1.T.copy(), None), source)
    table = compare_methods(source, batches=(2,))
    reasons = {m.method: m.reason for m in table.methods}
    assert reasons["static"] == reasons["static-per-channel"] == "needs calibration data"
    assert "shared" in reasons["int4"]
    assert "shared" in reasons["dynamic-per-channel"]
    assert not reasons["dynamic"]
    assert not reasons["float16"]
    assert "needs calibration data" in str(table)
    assert not compare_methods(source, methods=["int4"], untie=True, batches=(2,)).methods[1].reason


def test_overflow_is_a_reason(tmp_path):
    w1, b1, w2, b2 = block()
    source = tmp_path / "f.onnx"
    export_ffn((3e4 * w1, b1, 3e4 * w2, b2), source)
    found = compare_methods(source, methods=["float16", "dynamic"], batches=(1,)).methods
    assert "ends at 65504" in found[1].reason
    assert found[1].microseconds is None
    assert found[2].errors.max_rel < 0.05


def test_fixed_batch(tmp_path):
    made = gemm_model()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 5
    table = compare_methods(save(made, tmp_path / "f.onnx"), methods=["dynamic"])
    assert set(table.methods[1].microseconds) == {5}
    assert table.methods[1].errors.rows == 5


def test_arguments(tmp_path):
    source = tmp_path / "f.onnx"
    export_ffn(block(), source)
    with pytest.raises(ValueError, match=r"^methods: .*got 'int3'"):
        compare_methods(source, methods=["int3"])
    with pytest.raises(ValueError, match=r"^batches: .*got \(0,\)"):
        compare_methods(source, batches=(0,))
    with pytest.raises(ValueError, match=r"^calibration: "):
        compare_methods(source, calibration=np.zeros((2, IN - 1), np.float32))
