import numpy as np
import onnx
import pytest
from blocks import arrays, torch_block
from onnx import TensorProto, helper, numpy_helper

from gelu_fast.export import VerifyReport, export_ffn, verify


@pytest.fixture
def exported(tmp_path):
    path = tmp_path / "m.onnx"
    export_ffn(arrays(16, 16), path)
    return path


def foreign(weights, *, approximate="none", dims=("N",), element=TensorProto.FLOAT):
    """The block as somebody else would write it: Gemm with PyTorch's orientation, other names."""
    w1, b1, w2, b2 = weights
    nodes = [
        helper.make_node("Gemm", ["in", "A", "a"], ["h"], transB=1),
        helper.make_node("Gelu", ["h"], ["g"], approximate=approximate),
        helper.make_node("Gemm", ["g", "B", "b"], ["out"], transB=1),
    ]
    kept = [numpy_helper.from_array(v, k) for k, v in {"A": w1.T.copy(), "a": b1, "B": w2.T.copy(), "b": b2}.items()]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("in", element, [*dims, w1.shape[0]])],
        [helper.make_tensor_value_info("out", element, [*dims, w2.shape[1]])], kept,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_right_file(exported):
    report = verify(exported, arrays(16, 16))
    assert type(report) is VerifyReport
    assert report.passed is True
    assert report.failures == ()
    assert report.path == exported
    assert report.size == exported.stat().st_size
    assert verify(str(exported), arrays(16, 16)).sha256 == report.sha256


def test_model_in_memory(exported):
    report = verify(onnx.load(exported), arrays(16, 16))
    assert report.passed
    assert report.path is None
    assert "(in memory)" in str(report)


def test_formula_comes_from_the_module_then_the_file(tmp_path):
    path = tmp_path / "m.onnx"
    module = torch_block(16, 32, "tanh")
    weights = {name: p.detach() for name, p in module.named_parameters()}
    export_ffn(module, path)
    assert verify(path, module).formula == "tanh"
    assert verify(path, weights).passed
    report = verify(path, weights, approximate="none")
    assert report.passed is False
    assert report.formula == "none"
    assert "'tanh' formula, expected 'none'" in "; ".join(report.failures)
    module.act.approximate = "none"
    assert verify(path, module).passed is False
    with pytest.raises(ValueError, match="approximate: expected one of 'none', 'tanh', 'quick', got 'erf'"):
        verify(path, weights, approximate="erf")


def test_float64_reference(tmp_path):
    weights = arrays(dtype=np.float64)
    export_ffn(weights, tmp_path / "m.onnx", dtype="float32")
    assert verify(tmp_path / "m.onnx", weights).passed


@pytest.mark.parametrize("name", ["w1", "b1", "w2", "b2"])
def test_one_other_weight_is_named(exported, name):
    weights = dict(zip(("w1", "b1", "w2", "b2"), arrays(16, 16), strict=True))
    weights[name] = weights[name].copy()
    weights[name].flat[5] = np.nextafter(weights[name].flat[5], np.float32(9))
    report = verify(exported, weights)
    assert report.passed is False
    assert len(report.failures) == 1
    assert f"tensor '{name}': 1 of" in report.failures[0]
    assert report.levels  # all was run all the same


def test_transposed_reference(exported):
    w1, b1, w2, b2 = arrays(16, 16)
    report = verify(exported, (w1.T, b1, w2.T, b2))
    assert report.passed is False
    assert report.error_over_allowed > 1000


@pytest.mark.parametrize("width", [16, 512])
def test_models_made_by_others(width):
    weights = arrays(width, 4 * width)
    assert verify(foreign(weights), weights).passed
    for approximate in ("none", "tanh"):
        report = verify(foreign(weights, approximate=approximate), weights, approximate="none")
        assert report.passed is (approximate == "none")
    assert "the outputs are those of the 'tanh' formula, expected 'none'" in report.failures
    w1, b1, w2, b2 = weights
    assert verify(foreign(weights), (w1, b1, w2, np.zeros_like(b2))).passed is False
    w2 = w2.copy()
    w2[:, 7] *= 1.001
    assert verify(foreign(weights), (w1, b1, w2, b2)).passed is False


def test_formula_is_told_even_where_float32_noise_is_wide():
    weights = arrays(4096, 256, 4)
    report = verify(foreign(weights, approximate="tanh"), weights)
    assert "the outputs are those of the 'tanh' formula, expected 'none'" in report.failures
    assert verify(foreign(weights, approximate="tanh"), weights, approximate="tanh").passed


def test_formula_that_no_output_shows_is_read_from_the_node():
    weights = tuple(np.zeros_like(a) for a in arrays(4, 8))
    assert verify(foreign(weights), weights).passed
    report = verify(foreign(weights, approximate="tanh"), weights)
    assert report.passed is False
    assert "node '' states approximate='tanh', expected 'none'" in report.failures
    assert not any("outputs" in text for text in report.failures)


def test_another_spelling_is_run_all_the_same():
    weights = arrays(4, 8)
    model = foreign(weights)
    gelu = model.graph.node[1]
    model.graph.node.remove(gelu)
    half = numpy_helper.from_array(np.float32(0.5), "half")
    one, root = numpy_helper.from_array(np.float32(1), "one"), numpy_helper.from_array(np.float32(2**0.5), "root")
    model.graph.initializer.extend([half, one, root])
    spelled = [("Div", ["h", "root"], "d"), ("Erf", ["d"], "e"), ("Add", ["e", "one"], "s"),
               ("Mul", ["h", "s"], "p"), ("Mul", ["p", "half"], "g")]  # fmt: skip
    for index, (op, inputs, output) in enumerate(spelled):
        model.graph.node.insert(1 + index, helper.make_node(op, inputs, [output]))
    report = verify(model, weights)
    assert report.passed
    assert report.form == "other"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (arrays(8, 16), r"tensor 'b2': the model has shape \(16,\), the reference has shape \(8,\)"),
        (arrays(16, 8), r"tensor 'b1': the model has shape \(16,\), the reference has shape \(8,\)"),
        ((*arrays(16, 16)[:3], None), r"tensor 'b2': the model has shape \(16,\), the reference doesn't have it"),
    ],
)
def test_shapes_that_cannot_match_name_the_tensor(exported, reference, message):
    with pytest.raises(ValueError, match=message):
        verify(exported, reference)


def test_bias_that_only_the_reference_has(tmp_path):
    export_ffn(arrays(bias=False), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=r"tensor 'b1': the model doesn't have it, the reference has shape \(64,\)"):
        verify(tmp_path / "m.onnx", arrays())


def test_files_that_are_no_model(tmp_path, exported):
    with pytest.raises(FileNotFoundError, match="path_or_model: no file at"):
        verify(tmp_path / "none.onnx", arrays())
    with pytest.raises(TypeError, match=r"path_or_model: expected a path .* got int"):
        verify(3, arrays())
    for content in (b"PK\x03\x04 not a model", b"", exported.read_bytes()[:700]):
        exported.write_bytes(content)
        with pytest.raises(ValueError, match=r"path_or_model: .*m\.onnx"):
            verify(exported, arrays(16, 16))


def test_flipped_bit_in_a_weight(exported):
    content = bytearray(exported.read_bytes())
    at = content.find(arrays(16, 16)[2].tobytes())
    content[at + 4 * 20] ^= 1
    exported.write_bytes(content)
    report = verify(exported, arrays(16, 16))
    assert report.passed is False
    assert "tensor 'w2': 1 of 256 values differ" in report.failures[0]


def test_tensor_with_too_little_data_is_named(exported):
    model = onnx.load(exported)
    next(t for t in model.graph.initializer if t.name == "w2").raw_data = b"\0" * 12
    exported.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"tensor 'w2': shape \(16, 16\) needs 1024 bytes, the model holds 12"):
        verify(exported, arrays(16, 16))


def test_nan_in_the_model_fails(exported):
    model = onnx.load(exported)
    weights = arrays(16, 16)
    bad = weights[0].copy()
    bad[2, 3] = np.nan
    next(t for t in model.graph.initializer if t.name == "w1").CopyFrom(numpy_helper.from_array(bad, "w1"))
    report = verify(model, weights)
    assert report.passed is False
    assert "tensor 'w1': 1 of 256 values differ" in report.failures[0]
    assert '"max_abs_error": null' in report.to_json()


def test_interfaces_that_are_not_served():
    weights = arrays(4, 8)
    with pytest.raises(ValueError, match="'in': axis 0 is fixed at 1; expected dynamic leading axes"):
        verify(foreign(weights, dims=(1,)), weights)
    with pytest.raises(ValueError, match=r"'in': expected shape \(…, 5\)"):
        verify(foreign(weights), arrays(5, 8, 4))
    two = foreign(weights)
    two.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, ["N", 4]))
    with pytest.raises(ValueError, match="expected one input and one output, got 2 and 1"):
        verify(two, weights)
    wide = tuple(a.astype(np.float64) for a in weights)
    with pytest.raises(ValueError, match=r"onnxruntime .* can't load it .*Erf"):  # has no float64 kernel
        verify(foreign(wide, element=TensorProto.DOUBLE), weights)
    whole = foreign(weights)
    whole.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    with pytest.raises(ValueError, match="path_or_model: the model: not a valid ONNX model"):
        verify(whole, weights)


def test_model_that_fails_when_run():
    weights = arrays(4, 8)
    model = foreign(weights)
    model.graph.node.insert(0, helper.make_node("Reshape", ["in", "five"], ["in2"]))
    model.graph.node[1].input[0] = "in2"
    model.graph.initializer.append(numpy_helper.from_array(np.array([5, 4]), "five"))
    with pytest.raises(ValueError, match=r"path_or_model: onnxruntime .* can't run it on an input of \(\d, 4\)"):
        verify(model, weights)
