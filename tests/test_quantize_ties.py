"""Weights that several nodes share: stored once and right, or refused, never stored twice in silence."""

import numpy as np
import onnx
import pytest
from onnx import helper
from quantize_models import HIDDEN, IN, block, initializers, inputs, model, relative, run, save, weights

from gelu_fast.export import export_ffn
from gelu_fast.export.quantize import quantize
from gelu_fast.export.quantize_methods import METHODS

TRANSPOSABLE = ("dynamic", "static", "float16")
SLACK = 4096  # bytes of everything but the matrices


def quantized(source, out, method, **options):
    if method.startswith("static"):
        options.setdefault("calibration", inputs(256, seed=5))
    return quantize(source, out, method=method, **options)


def limit(method):
    return {"float16": 2e-3, "int4": 0.4}.get(method, 0.06)


def bytes_of(count, method):
    """Of a matrix of so many weights; int4 has 4 bytes of scale and half of a zero point for each 32."""
    return {"float16": 2 * count, "int4": count // 2 + count // 32 * 5}.get(method, count)


def transposed_block(tmp_path):
    """W2 = W1ᵀ, as export_ffn stores it: once."""
    w1, b1, _, _ = block()
    source = tmp_path / "f.onnx"
    export_ffn((w1, b1, w1.T.copy(), np.zeros(IN, np.float32)), source)
    assert "w2" not in initializers(source)
    return source


@pytest.mark.parametrize("method", TRANSPOSABLE)
def test_transposed_stays_shared(tmp_path, method):
    source, out = transposed_block(tmp_path), tmp_path / "q.onnx"
    report = quantized(source, out, method)
    assert report.size < bytes_of(IN * HIDDEN, method) + SLACK
    if method != "float16":
        assert report.ties[0].startswith("w1: ")
        assert "stored once, transposed" in report.ties[0]
        matrices = [name for name, array in initializers(out).items() if array.ndim == 2]
        assert matrices == ["w1_quantized"]
        assert not any(name.startswith("w1.transposed") for name in initializers(out))
        # The Transpose is folded when the model is loaded, so that the products are computed in integers.
        assert report.operators.count("QGemm" if method == "static" else "DynamicQuantizeMatMul") == 2
    x = inputs()
    assert 0 < relative(run(out, x), run(source, x)) < limit(method)


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(TRANSPOSABLE)))
def test_transposed_is_refused_where_it_cannot_stay_shared(tmp_path, method):
    source, out = transposed_block(tmp_path), tmp_path / "q.onnx"
    with pytest.raises(ValueError, match=r"tensor 'w1' is shared.*transposed.*untie"):
        quantized(source, out, method)
    assert [path.name for path in tmp_path.iterdir()] == ["f.onnx"]
    report = quantized(source, out, method, untie=True)
    assert "no longer shared, as asked for" in report.ties[0]
    assert report.size > 2 * bytes_of(IN * HIDDEN, method)
    x = inputs()
    assert 0 < relative(run(out, x), run(source, x)) < limit(method)


@pytest.mark.parametrize("method", METHODS)
def test_two_blocks_share_a_weight(tmp_path, method):
    """The same W1 in two blocks in a row: every method keeps it."""
    rng = np.random.default_rng(3)
    w1, b1, _, _ = block()
    stack = [(w1, b1, weights(rng, HIDDEN, IN), weights(rng, IN)) for _ in range(2)]
    source, out = tmp_path / "f.onnx", tmp_path / "q.onnx"
    export_ffn(stack, source)
    report = quantized(source, out, method)
    assert report.size < 3 * bytes_of(IN * HIDDEN, method) + 3 * SLACK
    if method != "float16":
        assert "stored once" in report.ties[0]
        assert len(report.quantized) == 4
        big = [a for a in initializers(out).values() if a.size >= bytes_of(IN * HIDDEN, "int4") // 2]
        assert len(big) == 3
    names = [tensor.name for tensor in onnx.load(out).graph.initializer]
    assert len(names) == len(set(names))
    x = inputs()
    assert 0 < relative(run(out, x), run(source, x)) < limit(method)


def embedding_model(readers):
    """A matrix that a product uses, and something that needs it as float."""
    w1, b1, w2, b2 = block()
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m"], name="product"),
        helper.make_node("Add", ["m", "b1"], ["hidden"]),
        helper.make_node("Gelu", ["hidden"], ["activated"]),
        *readers,
        helper.make_node("MatMul", ["a", "w2"], ["m2"]),
        helper.make_node("Add", ["m2", "b2"], ["y"]),
    ]
    tensors = {"w1": w1, "b1": b1, "w2": w2, "b2": b2, "row": np.int64(3)}
    return model(nodes, tensors)


@pytest.mark.parametrize(
    "readers",
    [
        [
            helper.make_node("Gather", ["w1", "row"], ["g"], name="embedding"),
            helper.make_node("Add", ["activated", "g"], ["a"]),
        ],
        [
            helper.make_node("Transpose", ["w1"], ["t"], perm=[1, 0]),
            helper.make_node("Gather", ["t", "row"], ["g"], name="embedding", axis=1),
            helper.make_node("Add", ["activated", "g"], ["a"]),
        ],
        [
            helper.make_node("Identity", ["w1"], ["i"]),
            helper.make_node("Gemm", ["x", "i"], ["g"], name="embedding", alpha=0.5),
            helper.make_node("Add", ["activated", "g"], ["a"]),
        ],
    ],
    ids=["gather", "gather of the transpose", "scaled product"],
)  # fmt: skip
def test_needed_as_float(tmp_path, readers):
    made = embedding_model(readers)
    if readers[0].op_type == "Transpose":  # (HIDDEN, IN)[:, row]
        assert readers[1].input[0] == "t"
    source = save(made, tmp_path / "f.onnx")
    for method in set(METHODS) - {"float16"}:
        out = tmp_path / f"{method}.onnx"
        with pytest.raises(ValueError, match=r"tensor 'w1' is shared.*'embedding' needs it as float"):
            quantized(source, out, method)
        report = quantized(source, out, method, untie=True)
        assert "no longer shared" in report.ties[0]
        assert report.errors.max_rel < limit(method)
        stored = initializers(out)
        assert stored["w1"].dtype == np.float32  # and the quantised one
        assert sum(name.startswith("w1.apart") and array.ndim > 1 for name, array in stored.items()) >= 1
    report = quantized(source, tmp_path / "h.onnx", "float16")
    assert report.errors.max_rel < limit("float16")


def test_a_weight_that_is_an_output(tmp_path):
    made = embedding_model([helper.make_node("Identity", ["activated"], ["a"])])
    made.graph.node.append(helper.make_node("Identity", ["w1"], ["weight"]))
    made.graph.output.append(helper.make_tensor_value_info("weight", 1, [IN, HIDDEN]))
    source = save(made, tmp_path / "f.onnx")
    with pytest.raises(ValueError, match="output 'weight' needs it as float"):
        quantize(source, tmp_path / "q.onnx", method="dynamic")


def test_names_that_are_taken(tmp_path):
    """The names that the tools derive exist already."""
    w1, b1, w2, b2 = block()
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b1"], ["hidden"], transB=1),
        helper.make_node("Gelu", ["hidden"], ["activated"]),
        helper.make_node("Gemm", ["activated", "w.transposed", "b2"], ["hidden_matmul"]),
        helper.make_node("Identity", ["hidden_matmul"], ["y"]),
    ]
    tensors = {"w": w1.T.copy(), "b1": b1, "w.transposed": w2, "b2": b2}
    source = save(model(nodes, tensors), tmp_path / "f.onnx")
    for method in METHODS:
        report = quantized(source, tmp_path / f"{method}.onnx", method)
        assert report.errors.max_rel < limit(method)
        assert len(report.quantized) == 2
