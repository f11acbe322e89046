"""Planted wrong models: each fails, and the cause is named. Ours by their tensors, others' by their values."""

import numpy as np
import onnx
import pytest
from blocks import arrays
from onnx import TensorProto, helper, numpy_helper
from test_verify import foreign

from gelu_fast.export import export_ffn, verify
from gelu_fast.export.blocks import Stack
from gelu_fast.export.sources import read_source


def stack(layers=3, n=16, hidden=16, dtype=np.float32):
    return Stack(tuple(read_source(arrays(n, hidden, n, seed=k, dtype=dtype)).blocks[0] for k in range(layers)))


def plant(path, **changes):
    """Replace initialisers by what the functions make of them."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name in changes:
            value = changes[tensor.name](numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), tensor.name))
    onnx.save(model, path)


def foreign_stack(stack, approximate="none"):
    """Gemm with PyTorch's orientation, names that say nothing."""
    nodes, kept, x = [], [], "in"
    for k, block in enumerate(stack.blocks):
        y = "out" if k == len(stack.blocks) - 1 else f"y{k}"
        kept += [numpy_helper.from_array(v, f"{name}{k}") for name, v in zip(
            "AaBb", (block.w1.T.copy(), block.b1, block.w2.T.copy(), block.b2), strict=True)]  # fmt: skip
        nodes += [
            helper.make_node("Gemm", [x, f"A{k}", f"a{k}"], [f"h{k}"], transB=1),
            helper.make_node("Gelu", [f"h{k}"], [f"g{k}"], approximate=approximate),
            helper.make_node("Gemm", [f"g{k}", f"B{k}", f"b{k}"], [y], transB=1),
        ]
        x = y
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, ["N", stack.in_features])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", stack.out_features])], kept,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("form", ["native", "fusable", "contrib", "function", "primitive"])
@pytest.mark.parametrize(("wrong", "right"), [("none", "tanh"), ("tanh", "none")])
def test_swapped_formula(tmp_path, dtype, form, wrong, right):
    """The activation by itself tells the formulas apart in every dtype, whatever spells it."""
    if dtype == "float64" and form != "primitive":
        with pytest.raises(ValueError, match="'primitive' works"):
            export_ffn(arrays(), tmp_path / "m.onnx", approximate=wrong, dtype=dtype, form=form)
        return
    export_ffn(arrays(), tmp_path / "m.onnx", approximate=wrong, dtype=dtype, form=form)
    weights = tuple(a.astype(dtype) for a in arrays())
    assert verify(tmp_path / "m.onnx", weights).passed
    report = verify(tmp_path / "m.onnx", weights, approximate=right)
    assert report.passed is False
    assert f"activation behind 'hidden' computes the {wrong!r} formula, expected {right!r}" in report.failures


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_outputs_alone_tell_formulas_apart(tmp_path, dtype):
    """In float16 no single row does: all of them together."""
    export_ffn(arrays(64, 256), tmp_path / "m.onnx", approximate="tanh", dtype=dtype)
    report = verify(tmp_path / "m.onnx", arrays(64, 256), approximate="none")
    assert "the outputs are those of the 'tanh' formula, expected 'none'" in report.failures
    assert (report.error_over_allowed > 1) is (dtype != "float16")


@pytest.mark.parametrize("name", ["w1", "w2"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_square_weight_transposed(tmp_path, name, dtype):
    export_ffn(arrays(16, 16), tmp_path / "m.onnx", dtype=dtype)
    plant(tmp_path / "m.onnx", **{name: np.transpose})
    report = verify(tmp_path / "m.onnx", arrays(16, 16))
    assert report.passed is False
    assert f"tensor {name!r} is transposed" in report.failures
    assert report.error_over_allowed > 1


@pytest.mark.parametrize("name", ["b1", "b2"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_nudged_bias(tmp_path, name, dtype):
    export_ffn(arrays(), tmp_path / "m.onnx", dtype=dtype)
    plant(tmp_path / "m.onnx", **{name: lambda b: (b.astype(np.float64) + 1e-3).astype(b.dtype)})
    report = verify(tmp_path / "m.onnx", arrays())
    assert report.passed is False
    assert any(text.startswith(f"tensor {name!r}: ") and "by up to 0.00" in text for text in report.failures)


@pytest.mark.parametrize("name", ["w1", "b2"])
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_initialiser_in_another_dtype(tmp_path, name, dtype):
    export_ffn(arrays(), tmp_path / "m.onnx")
    plant(tmp_path / "m.onnx", **{name: lambda a: a.astype(dtype)})
    report = verify(tmp_path / "m.onnx", arrays())
    assert report.passed is False
    assert f"tensor {name!r} is stored in {np.dtype(dtype)}, the model computes in float32" in report.failures
    assert "it can't run: not a valid ONNX model" in report.failures[-1]
    assert report.runtime == ""
    assert "FAILED" in str(report)


def test_two_layers_of_a_stack_swapped(tmp_path):
    blocks = stack().blocks
    export_ffn(Stack((blocks[0], blocks[2], blocks[1])), tmp_path / "m.onnx")
    report = verify(tmp_path / "m.onnx", stack())
    assert report.passed is False
    assert "tensor 'layers.1.w1' holds the reference's 'layers.2.w1'" in report.failures
    assert report.error_over_allowed > 1
    assert report.hidden_features == (16, 16, 16)
    assert report.features == (16,) * 7


def test_stack_of_another_length(tmp_path):
    export_ffn(stack(), tmp_path / "m.onnx")
    assert verify(tmp_path / "m.onnx", stack()).passed
    with pytest.raises(ValueError, match="the model has 3 blocks, the reference has 2"):
        verify(tmp_path / "m.onnx", stack(2))


def test_tied_weights(tmp_path):
    """Stored once; the reference may tie them or not, its values count."""
    w1, b1, _, b2 = arrays(16, 64)
    tied = (w1, b1, w1.T, b2)
    export_ffn(tied, tmp_path / "m.onnx")
    assert [t.name for t in onnx.load(tmp_path / "m.onnx").graph.initializer].count("w2") == 0
    assert verify(tmp_path / "m.onnx", tied).passed
    report = verify(tmp_path / "m.onnx", arrays(16, 64))
    assert report.passed is False
    assert any(text.startswith("tensor 'w2': ") for text in report.failures)


MISTAKES = {
    "w1 transposed": lambda w1, b1, w2, b2: (w1.T, b1, w2, b2),
    "w2 transposed": lambda w1, b1, w2, b2: (w1, b1, w2.T, b2),
    "w1 and w2 transposed": lambda w1, b1, w2, b2: (w1.T, b1, w2.T, b2),
    "b1 left out": lambda w1, b1, w2, b2: (w1, 0 * b1, w2, b2),
    "b2 left out": lambda w1, b1, w2, b2: (w1, b1, w2, 0 * b2),
}


@pytest.mark.parametrize("said", MISTAKES)
def test_mistakes_of_others(said):
    report = verify(foreign(MISTAKES[said](*arrays(16, 16))), arrays(16, 16))
    assert report.passed is False
    assert f"the outputs are those of the reference with {said}" in report.failures


def test_nudged_biases_of_others():
    w1, b1, w2, b2 = arrays()
    report = verify(foreign((w1, b1, w2, b2 + np.float32(1e-3))), arrays())
    assert "every row is off by the same: the last bias is wrong, by up to 0.001" in report.failures
    report = verify(foreign((w1, b1 + np.float32(1e-3), w2, b2)), arrays())
    assert "the model's 'a' is near the reference's 'b1', but 64 of 64 values differ, by up to 0.001" in report.failures


def test_exchanged_layers_of_others():
    blocks = stack().blocks
    assert verify(foreign_stack(stack()), stack()).passed
    report = verify(foreign_stack(Stack((blocks[1], blocks[0], blocks[2]))), stack())
    assert "the outputs are those of the reference with layers 0 and 1 exchanged" in report.failures
    report = verify(foreign_stack(stack(), "tanh"), stack())
    assert "the outputs are those of the 'tanh' formula, expected 'none'" in report.failures
    assert report.activations == ("h0", "h1", "h2")
