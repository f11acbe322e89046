"""What quantize refuses, with the argument's name and the reason, and that it leaves nothing behind."""

import numpy as np
import onnx
import pytest
from onnx import helper
from quantize_models import HIDDEN, IN, OUT, block, digest, gemm_model, inputs, model, save

from gelu_fast.export import export_ffn
from gelu_fast.export.quantize import quantize
from gelu_fast.export.quantize_report import QuantizationError


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "f.onnx"
    export_ffn(block(), path)
    return path


def refuse(source, error, match, **options):
    """Raises as it should, changes nothing and leaves nothing."""
    folder = source.parent
    before = {path.name: digest(path) for path in folder.iterdir()}
    with pytest.raises(error, match=match):
        quantize(**({"path": source, "out": folder / "q.onnx", "method": "dynamic"} | options))
    assert {path.name: digest(path) for path in folder.iterdir()} == before


def test_method(source):
    refuse(source, ValueError, r"^method: expected one of 'dynamic', .*, got 'int3'", method="int3")


def test_paths(source):
    folder = source.parent
    refuse(source, FileNotFoundError, "no file at", path=folder / "none.onnx")
    refuse(source, TypeError, "^path: expected the name of an .onnx file, got ModelProto", path=onnx.load(source))
    refuse(source, FileNotFoundError, "directory", out=folder / "none" / "q.onnx")
    refuse(source, FileExistsError, "f.onnx exists already", out=source)
    refuse(source, ValueError, "^out: .*never changed", out=source, overwrite=True)
    (folder / "link.onnx").symlink_to(source)
    refuse(source, ValueError, "^out: .*never changed", out=folder / "link.onnx", overwrite=True)
    (folder / "text.onnx").write_text("no model")
    refuse(source, ValueError, "not an ONNX model", path=folder / "text.onnx")


def test_overwrite(source):
    out = source.with_name("q.onnx")
    out.write_text("older")
    refuse(source, FileExistsError, "exists already")
    quantize(source, out, method="dynamic", overwrite=True)
    assert onnx.load(out).graph.node


def test_external_data_is_input_too(tmp_path):
    source = tmp_path / "f.onnx"
    export_ffn(block(), source, external_data=True)
    data = next(path for path in tmp_path.iterdir() if path.suffix == ".data")
    refuse(source, ValueError, "^out: .*belongs to the model", out=data, overwrite=True)
    data.rename(tmp_path / "moved")
    refuse(source, FileNotFoundError, data.name)


@pytest.mark.parametrize(
    ("calibration", "error", "match"),
    [
        (None, ValueError, "^calibration: 'static' takes its ranges from inputs"),
        (3, TypeError, "^calibration: expected an array .*, got int"),
        (inputs(5, width=IN + 1), ValueError, rf"^calibration: input 'x' has the shape \('any', {IN}\), got"),
        (np.zeros((0, IN), np.float32), ValueError, "^calibration: expected at least one row, got none"),
        ([], ValueError, "^calibration: expected at least one row, got none"),
        (np.full((3, IN), np.nan, np.float32), ValueError, "^calibration: input 'x' holds nan or infinities"),
        (inputs(3)[0], ValueError, "^calibration: input 'x' has rank 2"),
        ([{"z": inputs(3)}], ValueError, "^calibration: expected the inputs x, got z"),
        ([inputs(3)], TypeError, "^calibration: expected dicts of arrays by input name, got ndarray as number 0"),
        (inputs(3).astype(complex), TypeError, "^calibration: input 'x' is float32, got complex128"),
        ({"x": inputs(3), "z": inputs(4)}, ValueError, "^calibration: expected arrays with as many rows each"),
        ("none.npz", FileNotFoundError, "^calibration: no file at none.npz"),
    ],
)
def test_calibration(source, calibration, error, match):
    refuse(source, error, match, method="static", calibration=calibration)


def test_calibration_file_that_is_none(source):
    path = source.with_name("text.npz")
    path.write_text("no archive")
    refuse(source, ValueError, "^calibration: .*text.npz is no .npz", method="static", calibration=path)
    path.write_bytes(b"PK\x03\x04 cut off")
    refuse(source, ValueError, "^calibration: .*text.npz", method="static", calibration=path)
    np.savez(path, x=np.array([object()], dtype=object))
    refuse(source, ValueError, "^calibration: .*text.npz is no", method="static", calibration=path)


def test_calibration_forms(source):
    """The same rows in each form give the same file."""
    x = inputs(130)
    folder = source.parent
    np.savez(folder / "named.npz", x=x)
    np.savez(folder / "other.npz", whatever=x)
    np.save(folder / "one.npy", x)
    forms = [x, {"x": x}, ({"x": part} for part in (x[:64], x[64:])), folder / "named.npz", str(folder / "other.npz"),
             folder / "one.npy", x.astype(np.float64)]  # fmt: skip
    found = set()
    for number, form in enumerate(forms):
        report = quantize(source, folder / f"{number}.onnx", method="static", calibration=form)
        assert report.settings["calibration rows"] == 130
        found.add(report.sha256)
    assert len(found) == 1
    other = quantize(source, folder / "o.onnx", method="static", calibration=2 * x)
    assert other.sha256 not in found


def test_targets(source):
    for method in ("dynamic", "int4"):
        report = quantize(source, source.with_name(f"{method}.onnx"), method=method, target="onnxruntime>=1.17")
        assert report.target == "onnxruntime>=1.17"
        assert any("alone" in text for text in report.remarks)
    refuse(source, ValueError, "^target: .*opset 20, the model's own", target="opset 17")
    refuse(source, ValueError, "^target: .*MatMulNBits", target="opset 20", method="int4")
    refuse(source, ValueError, "^target: expected", target="windows")
    made = onnx.load(source)
    made.ir_version = 12
    newer = save(made, source.with_name("newer.onnx"))
    refuse(source, ValueError, "^target: .*the model has opset 20, IR 12", path=newer, target="onnxruntime==1.17")


@pytest.mark.parametrize("method", ["dynamic", "int4", "float16"])
def test_nothing_to_do(tmp_path, method):
    nodes = [helper.make_node("Gelu", ["x"], ["y"])]
    source = save(model(nodes, {}, outputs=(("y", ["n", IN]),)), tmp_path / "f.onnx")
    refuse(source, ValueError, "^path: (nothing that|no tensor)", method=method)
    source = tmp_path / "double.onnx"
    export_ffn(block(), source, dtype="float64")
    refuse(source, ValueError, "^path: (nothing that .* is double; float32 is served|no tensor)", method=method)


def test_quantised_already(source):
    out = source.with_name("once.onnx")
    quantize(source, out, method="dynamic")
    refuse(source, ValueError, "^path: .*quantised already", path=out)


@pytest.mark.parametrize("method", ["dynamic", "static", "float16", "int4"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(tmp_path, method, value):
    w1, b1, w2, b2 = block()
    w2[1, 2] = value
    source = tmp_path / "f.onnx"
    export_ffn((w1, b1, w2, b2), source, allow_nonfinite=True, verify=False)
    options = {"calibration": inputs(8)} if method == "static" else {}
    refuse(source, ValueError, "^path: tensor 'w2' holds nan or infinities", method=method, **options)


def test_float16_range(tmp_path):
    w1, b1, w2, b2 = block()
    w1[3, 4] = 70_000
    source = tmp_path / "f.onnx"
    export_ffn((w1, b1, w2, b2), source)
    refuse(source, ValueError, r"^path: tensor 'w1' reaches 7e\+04 and float16 ends at 65504", method="float16")
    quantize(source, tmp_path / "q.onnx", method="dynamic")


def test_float16_overflow_on_the_way(tmp_path):
    """Every weight fits and the products don't: found by running, and no file is left."""
    w1, b1, w2, b2 = block()
    source = tmp_path / "f.onnx"
    export_ffn((3e4 * w1, b1, 3e4 * w2, b2), source)
    message = r"q.onnx: not written, because .*tensor y reaches .* ends at 65504"
    refuse(source, QuantizationError, message, method="float16")
    message = r"q.onnx: not written, because row \d+ isn't finite, and is in the float model"
    refuse(source, QuantizationError, message, method="float16", keep_io_types=False)


def test_small_weights_are_reported(tmp_path):
    w1, b1, w2, b2 = block()
    w1[0, :5] = 1e-6
    source = tmp_path / "f.onnx"
    export_ffn((w1, b1, w2, b2), source)
    remarks = quantize(source, tmp_path / "q.onnx", method="float16").remarks
    count = int((np.abs(w1) < 2.0**-14).sum())
    assert count >= 5
    assert f"w1: {count} of {IN * HIDDEN} values" in " ".join(remarks)


def test_reduce_range_without_int8(source):
    refuse(source, ValueError, "^reduce_range: 'int4' has no int8 weights", method="int4", reduce_range=True)


def test_inputs_that_nobody_can_make_up(tmp_path):
    """Token numbers: written, but the error isn't measured unless there is data."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((10, IN)).astype(np.float32)
    made = gemm_model()
    made.graph.node.insert(0, helper.make_node("Gather", ["table", "tokens"], ["x"]))
    made.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    made.graph.ClearField("input")
    made.graph.input.append(helper.make_tensor_value_info("tokens", onnx.TensorProto.INT64, ["n"]))
    source = save(made, tmp_path / "f.onnx")
    report = quantize(source, tmp_path / "a.onnx", method="dynamic")
    assert report.errors is None
    assert "not measured" in str(report)
    tokens = {"tokens": np.arange(10)}
    report = quantize(source, tmp_path / "b.onnx", method="static", calibration=tokens)
    assert 0 < report.errors.max_rel < 0.05
    assert report.errors.rows == 10
    refuse(source, TypeError, "input 'tokens' is int64, got float64", calibration=np.zeros(3))
    assert onnx.load(source).graph.output[0].type.tensor_type.shape.dim[1].dim_value == OUT
