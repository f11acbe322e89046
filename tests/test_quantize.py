"""quantize: every method, on what we export and on what others do; what is reported is what happened."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from blocks import gelu64
from onnx import helper
from quantize_models import HIDDEN, IN, OUT, block, digest, gemm_model, initializers, inputs, model, relative, run, save

from gelu_fast.export import export_ffn
from gelu_fast.export.quantize import quantize
from gelu_fast.export.quantize_methods import METHODS

# Relative error by row on these 64 → 96 → 48 blocks: 8 bits for the inputs and the weights, 11, and 4.
LIMITS = {"float16": 2e-3, "int4": 0.3}
LIMIT = 0.05
KERNELS = {
    "dynamic": "DynamicQuantizeMatMul", "dynamic-per-channel": "DynamicQuantizeMatMul", "static": "QGemm",
    "static-per-channel": "QGemm", "int4": "MatMulNBits", "float16": "Gelu",
}  # fmt: skip
SPELLINGS = [
    ("none", "native"), ("tanh", "native"), *((formula, form) for formula in ("none", "tanh", "quick")
                                               for form in ("fusable", "contrib", "function", "primitive"))
]  # fmt: skip


def quantized(source, out, method, **options):
    if method.startswith("static"):
        options.setdefault("calibration", inputs(256, seed=5))
    return quantize(source, out, method=method, **options)


@pytest.mark.parametrize("method", METHODS)
def test_of_our_export(tmp_path, method):
    source, out = tmp_path / "f.onnx", tmp_path / "q.onnx"
    export_ffn(block(), source)
    before = digest(source)
    report = quantized(source, out, method)
    assert report.passed
    assert KERNELS[method] in report.operators
    x = inputs()
    error = relative(run(out, x), run(source, x))
    assert 0 < error < LIMITS.get(method, LIMIT)
    assert 0 < report.errors.max_rel < LIMITS.get(method, LIMIT)
    assert report.errors.min_cosine > 0.95
    assert digest(source) == before
    assert report.size == out.stat().st_size < 0.6 * report.source_size == 0.6 * source.stat().st_size
    assert report.sha256 == digest(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.onnx", "q.onnx"]
    # Every node is accounted for once.
    names = [node.name for node in (*report.quantized, *report.kept)]
    assert sorted(names) == sorted(node.name for node in onnx.load(source).graph.node)
    stored = {array.dtype.name for array in initializers(out).values()}
    assert stored & {"float16" if method == "float16" else "uint8" if method == "int4" else "int8"}
    stated = {entry.key: entry.value for entry in onnx.load(out).metadata_props}
    assert stated["gelu_fast.quantization"] == method
    assert stated["gelu_fast.formula"] == "none"
    assert not any(key.startswith("onnx.") for key in stated)


@pytest.mark.parametrize(("formula", "form"), SPELLINGS)
@pytest.mark.parametrize("method", ["dynamic-per-channel", "static", "float16", "int4"])
def test_gelu_survives(tmp_path, method, formula, form):
    """The GELU between the tensors is the formula that it was, in every spelling."""
    source, out = tmp_path / "f.onnx", tmp_path / "q.onnx"
    export_ffn(block(), source, approximate=formula, form=form)
    report = quantized(source, out, method)
    hidden, activated = run(out, 3 * inputs(), ("hidden", "activated"))
    assert np.abs(hidden).max() > 3
    assert hidden.dtype == activated.dtype == (np.float16 if method == "float16" else np.float32)
    expected = gelu64(hidden, formula)
    # As a chain in float16 each step rounds, and 1 + erf cancels: half an ulp of 1 at each end, times x.
    limit = 2.0**-9 * np.maximum(1, np.abs(hidden.astype(np.float64))) if method == "float16" else 2e-6
    assert (np.abs(activated - expected) <= limit).all()
    if form == "function":
        assert "inlined" in report.steps[0]


@pytest.mark.parametrize("method", METHODS)
def test_three_axes(tmp_path, method):
    source, out = tmp_path / "f.onnx", tmp_path / "q.onnx"
    export_ffn(block(), source, dims=("batch", "seq"))
    report = quantized(source, out, method)
    if method.startswith("static"):
        assert report.operators.count("MatMulIntegerToFloat") == 2
        assert not report.steps
    x = inputs(42).reshape(6, 7, IN)
    assert 0 < relative(run(out, x), run(source, x)) < LIMITS.get(method, LIMIT)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("turned", [False, True])
def test_gemm(tmp_path, method, turned):
    source, out = save(gemm_model(turned), tmp_path / "f.onnx"), tmp_path / "q.onnx"
    report = quantized(source, out, method)
    assert KERNELS[method] in report.operators
    assert [node.operator for node in report.quantized] == ["Gemm", "Gemm"]
    if method != "float16":
        assert len(report.quantized) == 2
        assert not set(initializers(out)) & {"w1", "w2"}  # no float weight is left beside
        assert any("MatMul + Add" in step for step in report.steps) != method.startswith("static")
    x = inputs()
    assert 0 < relative(run(out, x), run(source, x)) < LIMITS.get(method, LIMIT)


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("method", ["dynamic", "static-per-channel", "float16", "int4"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_torch_exporters(tmp_path, method, dynamo):
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    torch.manual_seed(0)
    linear, gelu = torch.nn.Linear, torch.nn.GELU("tanh")
    module = torch.nn.Sequential(linear(IN, HIDDEN), gelu, linear(HIDDEN, OUT)).eval()
    x = torch.from_numpy(inputs())
    source, out = tmp_path / "f.onnx", tmp_path / "q.onnx"
    axes = {"dynamic_shapes": ({0: torch.export.Dim("n")},)} if dynamo else {"dynamic_axes": {"x": {0: "n"}}}
    torch.onnx.export(module, (x,), str(source), input_names=["x"], dynamo=dynamo, external_data=False, **axes)
    report = quantized(source, out, method)
    assert len(report.quantized) == 2
    expected = module(x).detach().numpy()
    assert 0 < relative(run(out, x.numpy()), expected) < LIMITS.get(method, LIMIT)


def test_bare_and_shared_biases(tmp_path):
    """Without a bias, and one bias added to two products of other scales."""
    w1, b1, _, _ = block()
    rng = np.random.default_rng(4)
    big = (50 * rng.standard_normal((HIDDEN, HIDDEN))).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b"], ["a"]),
        helper.make_node("Gemm", ["a", "w2", "b"], ["c"]),
        helper.make_node("Gemm", ["c", "w3"], ["y"]),
    ]
    made = model(nodes, {"w1": w1, "b": b1, "w2": big, "w3": block()[2]})
    for method in METHODS:
        source, out = save(made, tmp_path / "f.onnx"), tmp_path / f"{method}.onnx"
        report = quantized(source, out, method)
        assert len(report.quantized) == 3
        assert report.errors.max_rel < (0.4 if method == "int4" else LIMITS.get(method, LIMIT))


def test_kept_with_the_reason(tmp_path):
    """Scaled Gemm, a product of two computed factors, one in a subgraph, a matrix that may be fed."""
    w1, b1, w2, _ = block()
    branch = helper.make_graph([helper.make_node("MatMul", ["activated", "inner"], ["picked"])], "branch", [],
                               [helper.make_tensor_value_info("picked", 1, None)])  # fmt: skip
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="scaled", alpha=0.5),
        helper.make_node("MatMul", ["x", "w1b"], ["h2"], name="taken"),
        helper.make_node("Add", ["h", "h2"], ["hidden"]),
        helper.make_node("Gelu", ["hidden"], ["activated"]),
        helper.make_node("Greater", ["limit", "limit"], ["flag"]),
        helper.make_node("If", ["flag"], ["p"], then_branch=branch, else_branch=branch),
        helper.make_node("MatMul", ["activated", "fed"], ["q"], name="may be fed"),
        helper.make_node("Transpose", ["p"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["t", "q"], ["m"], name="computed"),
        helper.make_node("MatMul", ["p", "m"], ["y"], name="computed too"),
    ]
    tensors = {"w1": w1, "b1": b1, "w1b": w1[::-1].copy(), "inner": w2, "fed": w2[:, ::-1].copy(),
               "limit": np.float32(1)}  # fmt: skip
    made = model(nodes, tensors, inputs=(("x", ["n", IN]), ("fed", list(w2.shape))))
    source = save(made, tmp_path / "f.onnx")
    for method in ("dynamic", "static", "int4"):
        out = tmp_path / f"{method}.onnx"
        report = quantized(source, out, method)
        reasons = {node.name: node.reason for node in report.kept}
        assert [node.name for node in report.quantized] == ["taken"]
        assert "alpha 0.5" in reasons["scaled"]
        assert "may be fed" in reasons["may be fed"]
        assert "computed" in reasons["computed"]
        assert any("subgraph" in reason for reason in reasons.values())
        assert initializers(out)["w1"].dtype == np.float32
        assert report.errors.max_rel < LIMITS.get(method, LIMIT)


def test_constants_and_identities(tmp_path):
    """Weights as Constant nodes, behind Identity and Transpose."""
    w1, b1, w2, b2 = block()
    nodes = [
        helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(w1.T.copy())),
        helper.make_node("Identity", ["c"], ["i"]),
        helper.make_node("Transpose", ["i"], ["w1"]),
        helper.make_node("MatMul", ["x", "w1"], ["m"]),
        helper.make_node("Add", ["b1", "m"], ["hidden"]),
        helper.make_node("Gelu", ["hidden"], ["activated"]),
        helper.make_node("Constant", [], ["one"], value_float=1.0),
        helper.make_node("Mul", ["activated", "one"], ["a"]),
        helper.make_node("MatMul", ["a", "w2"], ["m2"]),
        helper.make_node("Add", ["m2", "b2"], ["y"]),
    ]
    source = save(model(nodes, {"b1": b1, "w2": w2, "b2": b2}), tmp_path / "f.onnx")
    for method in METHODS:
        out = tmp_path / f"{method}.onnx"
        report = quantized(source, out, method)
        assert KERNELS[method] in report.operators
        assert report.errors.max_rel < LIMITS.get(method, LIMIT)
        if method != "float16":
            assert len(report.quantized) == 2
            assert "float32" not in {a.dtype.name for a in initializers(out).values() if a.ndim == 2 and a.size > 999}


def test_external_data(tmp_path):
    source, out = tmp_path / "f.onnx", tmp_path / "q.onnx"
    export_ffn(block(), source, external_data=True)
    files = {path: digest(path) for path in tmp_path.iterdir()}
    assert len(files) == 3
    report = quantize(source, out, method="dynamic")
    assert report.source_size > 40_000
    assert {path: digest(path) for path in files} == files
    x = inputs()
    assert relative(run(out, x), run(source, x)) < LIMIT


def test_reduce_range(tmp_path):
    source = tmp_path / "f.onnx"
    export_ffn(block(), source)
    largest = {}
    for flag in (False, True):
        out = tmp_path / f"{flag}.onnx"
        report = quantize(source, out, method="dynamic-per-channel", reduce_range=flag)
        largest[flag] = max(np.abs(a.astype(int)).max() for a in initializers(out).values() if a.dtype == np.int8)
        assert any("VNNI" in text for text in report.remarks) != flag
        assert ("7 bits" in report.quantized[0].stored_as) == flag
    assert largest[True] <= 64 < largest[False]


@pytest.mark.parametrize("kept", [True, False])
def test_float16_inputs_and_outputs(tmp_path, kept):
    source, out = tmp_path / "f.onnx", tmp_path / "q.onnx"
    export_ffn(block(), source)
    quantize(source, out, method="float16", keep_io_types=kept)
    graph = onnx.load(out).graph
    kinds = {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    assert kinds == {onnx.TensorProto.FLOAT if kept else onnx.TensorProto.FLOAT16}
    x = inputs()
    assert 0 < relative(run(out, x), run(source, x)) < LIMITS["float16"]


@pytest.mark.parametrize("method", METHODS)
def test_same_bytes(tmp_path, method):
    source = tmp_path / "f.onnx"
    export_ffn(block(), source)
    first, second = (quantized(source, tmp_path / f"{i}.onnx", method).sha256 for i in range(2))
    assert first == second


@pytest.mark.parametrize("method", METHODS)
def test_zero_weights_and_dead_columns(tmp_path, method):
    w1, b1, w2, b2 = block()
    w1[:, :8] = 0
    source, out = tmp_path / "f.onnx", tmp_path / "q.onnx"
    export_ffn((w1, b1, np.zeros_like(w2), b2), source)
    quantized(source, out, method)
    x = inputs()
    assert relative(run(out, x), run(source, x)) < LIMITS.get(method, LIMIT)


def test_report(tmp_path):
    source, out = tmp_path / "f.onnx", tmp_path / "q.onnx"
    export_ffn(block(), source)
    report = quantized(source, out, "static")
    content = json.loads(report.to_json())
    assert content["passed"] is True
    assert content["path"] == str(out)
    assert content["settings"]["calibration rows"] == 256
    assert content["errors"]["rows"] == 256
    assert content["errors"]["on"] == "the calibration data"
    text = str(report)
    assert "not quantised" in text
    assert report.sha256 in text
    # The worst row is the one that it says.
    x = inputs(256, seed=5)
    a, b = run(out, x).astype(np.float64), run(source, x).astype(np.float64)
    errors = np.abs(a - b).max(axis=1) / np.abs(b).max(axis=1)
    assert errors.argmax() == report.errors.worst_row
    assert errors.max() == pytest.approx(report.errors.max_rel, rel=1e-3)
    assert np.abs(a - b).max() == pytest.approx(report.errors.max_abs, rel=1e-3)
    cosine = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert cosine.min() == pytest.approx(report.errors.min_cosine, abs=1e-6)


LOGGING = """
import logging, sys
from gelu_fast.export.quantize import quantize
quantize(sys.argv[1], sys.argv[2], method="int4")
quantize(sys.argv[1], sys.argv[3], method="dynamic")
assert "onnxruntime.quantization.matmul_nbits_quantizer" in sys.modules
print(logging.getLogger().handlers, logging.getLogger().level)
"""


def test_logging_is_left_alone(tmp_path):
    """One of onnxruntime's modules sets up the root logger when it is imported; not under pytest, which has done so."""
    source = tmp_path / "f.onnx"
    export_ffn(block(), source)
    command = [sys.executable, "-c", LOGGING, source, tmp_path / "a.onnx", tmp_path / "b.onnx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[] 30\n", "")


def test_progress(tmp_path, capfd):
    source = tmp_path / "f.onnx"
    export_ffn(block(), source)
    quantized(source, tmp_path / "q.onnx", "static", progress=True)
    out, error = capfd.readouterr()
    assert "calibration" in error
    assert "100%" in error
    assert out == ""
