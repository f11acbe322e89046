import json
import os
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from blocks import arrays, torch_block
from onnx import shape_inference
from torch import nn

from gelu_fast import forms
from gelu_fast.export import ExportReport, export_ffn

MODES = [("none", ("batch",)), ("tanh", ("batch",)), ("none", ("batch", "seq")), ("tanh", ("batch", "seq"))]


def run(path, x):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def by_hand(weights, x, form):
    """The block in float64 from the scalar reference."""
    w1, b1, w2, b2 = (0.0 if a is None else a.astype(np.float64) for a in weights)
    gelu = np.vectorize(lambda v: forms.reference(v, form), otypes=[np.float64])
    return gelu(x.astype(np.float64) @ w1 + b1) @ w2 + b2


@pytest.mark.parametrize(("approximate", "dims"), MODES)
@pytest.mark.parametrize("bias", [True, False])
def test_arrays(tmp_path, approximate, dims, bias):
    weights = arrays(12, 40, 9, bias=bias)
    path = tmp_path / "m.onnx"
    report = export_ffn(weights, path, approximate=approximate, dims=dims)
    assert report.passed
    assert (report.formula, report.form, report.opset, report.ir_version) == (approximate, "native", 20, 9)
    for shape in [(1,), (5,), (0,)] if len(dims) == 1 else [(1, 1), (5, 2), (0, 3), (2, 0)]:
        x = np.random.default_rng(3).standard_normal((*shape, 12)).astype(np.float32)
        y = run(path, x)
        assert y.shape == (*shape, 9)
        np.testing.assert_allclose(y, by_hand(weights, x, approximate).reshape(y.shape), rtol=0, atol=2e-6)


@pytest.mark.parametrize(("approximate", "dims"), MODES)
def test_torch_block(tmp_path, approximate, dims):
    module = torch_block(48, 192, approximate)
    report = export_ffn(module, tmp_path / "m.onnx", dims=dims)
    assert report.passed
    assert report.formula == approximate
    x = torch.randn(*(3,) * len(dims), 48, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        want = module(x).numpy()
    np.testing.assert_allclose(run(tmp_path / "m.onnx", x.numpy()), want, rtol=0, atol=2e-6)


def test_sequential_and_file_give_the_bytes_of_the_arrays(tmp_path):
    module = torch_block(6, 10)
    weights = [p.detach().numpy() for p in module.parameters()]
    as_arrays = (weights[0].T, weights[1], weights[2].T, weights[3])
    np.savez(tmp_path / "w.npz", **{k: v.numpy() for k, v in module.state_dict().items()})
    sources = [module, nn.Sequential(module.fc1, module.act, module.fc2), as_arrays, tmp_path / "w.npz"]
    digests = set()
    for index, source in enumerate(sources):
        report = export_ffn(source, tmp_path / f"{index}.onnx")
        digests.add((report.sha256, (tmp_path / f"{index}.onnx").read_bytes()))
    assert len(digests) == 1


def test_orientation_of_square_weights(tmp_path):
    weights = arrays(16, 16)
    export_ffn(weights, tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
    y = run(tmp_path / "m.onnx", x)
    np.testing.assert_allclose(y, by_hand(weights, x, "none"), rtol=0, atol=2e-6)
    w1, b1, w2, b2 = weights
    assert np.abs(y - by_hand((w1.T, b1, w2.T, b2), x, "none")).max() > 0.1


def test_the_file_is_what_the_issue_asks_for(tmp_path):
    path = tmp_path / "m.onnx"
    report = export_ffn(arrays(6, 10, 3), path, approximate="tanh", dims=("batch", "seq"))
    model = onnx.load(path)
    assert model.ir_version == 9
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 20)]
    assert model.producer_name == "gelu_fast"
    assert model.producer_version
    stated = {entry.key: entry.value for entry in model.metadata_props}
    assert stated["gelu_fast.formula"] == "tanh"
    assert "0.044715" in stated["gelu_fast.formula_text"]
    gelu = [node for node in model.graph.node if node.op_type == "Gelu"]
    assert [attribute.s for attribute in gelu[0].attribute] == [b"tanh"]
    onnx.checker.check_model(model, full_check=True)
    inferred = shape_inference.infer_shapes(model, strict_mode=True, check_type=True, data_prop=True)
    shapes = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in inferred.graph.value_info
    }
    assert shapes["hidden"] == ["batch", "seq", 10]
    for value, last in ((model.graph.input[0], 6), (model.graph.output[0], 3)):
        axes = value.type.tensor_type.shape.dim
        assert [d.dim_param or d.dim_value for d in axes] == ["batch", "seq", last]
    assert report.dims == ("batch", "seq")


def test_report(tmp_path):
    path = tmp_path / "m.onnx"
    report = export_ffn(arrays(), path)
    assert isinstance(report, ExportReport)
    assert report.path == path
    assert report.files == (path,)
    assert report.size == path.stat().st_size
    digest = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
    assert report.sha256 == digest
    assert report.runtime.startswith(f"onnxruntime {onnxruntime.__version__}")
    assert 0 < report.max_abs_error < 2e-6
    assert 0 < report.max_rel_error < 1e-5
    assert 0 < report.error_over_allowed < 1
    assert {0, 1, 7, 33} <= {shape[0] for shape in report.batches}
    loaded = json.loads(report.to_json())
    assert loaded["sha256"] == digest
    assert loaded["path"] == str(path)
    assert loaded["passed"] is True
    assert loaded["operators"] == list(report.operators)
    table = str(report)
    for text in (digest, "passed", str(path), "Gelu", "opset 20, IR 9", onnxruntime.__version__):
        assert text in table


@pytest.mark.parametrize(
    ("approximate", "dims", "kept"),
    [
        ("none", ("batch",), ["Gemm", "Gelu", "Gemm"]),
        ("tanh", ("batch",), ["Gemm", "Gelu", "Gemm"]),
        ("none", ("batch", "seq"), ["MatMul", "BiasGelu", "MatMul", "Add"]),
        ("tanh", ("batch", "seq"), ["MatMul", "FastGelu", "MatMul", "Add"]),
    ],
)
def test_operators_the_runtime_keeps(tmp_path, approximate, dims, kept):
    report = export_ffn(arrays(), tmp_path / "m.onnx", approximate=approximate, dims=dims)
    assert list(report.operators) == kept


def test_same_source_same_bytes_in_another_process(tmp_path):
    code = (
        "import sys; from gelu_fast.export import export_ffn; from gelu_fast.export.sources import random_block;"
        "print(export_ffn(random_block(8, 12, 3), sys.argv[1], dims=('b', 's')).sha256)"
    )
    digests = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-Pc", code, str(tmp_path / f"{seed}.onnx")],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        digests.add(done.stdout)
    assert len(digests) == 1


def test_verify_false_measures_nothing(tmp_path):
    report = export_ffn(arrays(), tmp_path / "m.onnx", verify=False)
    assert report.passed is None
    assert report.max_abs_error is None
    assert report.sha256 == export_ffn(arrays(), tmp_path / "n.onnx").sha256
    assert "not verified" in str(report)


@pytest.mark.parametrize("kind", ["constant", "positive", "ternary", "zero", "tiny", "large"])
@pytest.mark.parametrize(("n", "hidden", "out"), [(1, 1, 1), (2, 3, 1), (256, 256, 256), (16, 4096, 4), (1024, 64, 8)])
def test_honest_exports_pass_whatever_the_weights(tmp_path, kind, n, hidden, out):
    """The tolerance follows the block: sums that round all one way, that cancel, or that are exact."""
    weights = arrays(n, hidden, out)
    change = {
        "constant": lambda a: np.full_like(a, 0.0123), "positive": np.abs, "zero": np.zeros_like,
        "ternary": lambda a: np.sign(a) * (np.abs(a) > 0.3 * np.abs(a).max()),
        "tiny": lambda a: a * np.float32(1e-12), "large": lambda a: a * np.float32(1e6),
    }[kind]  # fmt: skip
    weights = tuple(change(a) for a in weights)
    for index, (approximate, dims) in enumerate(MODES):
        report = export_ffn(weights, tmp_path / f"{index}.onnx", approximate=approximate, dims=dims)
        assert report.error_over_allowed < 0.7, report


@pytest.mark.parametrize(
    ("approximate", "operator"), [("none", "BiasGelu"), ("tanh", "FastGelu"), ("quick", "QuickGelu")]
)
@pytest.mark.parametrize("dims", [("batch",), ("batch", "seq")])
def test_contrib_takes_the_bias_with_it_in_3_d(tmp_path, approximate, operator, dims):
    """Case 5: report lists the operators after optimisation."""
    report = export_ffn(arrays(12, 40, 9), tmp_path / "m.onnx", approximate=approximate, form="contrib", dims=dims)
    assert report.passed
    written = [node for node in onnx.load(report.path).graph.node if node.domain == "com.microsoft"]
    bias = len(dims) > 1 and approximate != "quick"
    assert [(n.op_type, len(n.input)) for n in written] == [
        (operator if bias or approximate != "none" else "Gelu", 2 if bias else 1)
    ]
    assert set(report.operators) == ({"MatMul", "Add", operator} if len(dims) > 1 else {"Gemm", written[0].op_type})
    assert {edge.cause for edge in report.edges} == {"runtime"}


def test_timing(tmp_path):
    report = export_ffn(arrays(), tmp_path / "m.onnx", timing=True)
    assert {"native", "fusable", "contrib", "function", "primitive", "torch"} <= {line.name for line in report.latency}


def test_the_same_bytes_under_any_locale_and_hash_seed(tmp_path):
    code = (
        "import locale, sys; locale.setlocale(locale.LC_ALL, '')\n"
        "from gelu_fast.export import export_ffn\n"
        "from gelu_fast.export.blocks import random_block\n"
        "print(export_ffn(random_block(4, 6, 0), sys.argv[1], form='primitive', verify=False).sha256)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-Pc", code, tmp_path / f"{index}.onnx"], capture_output=True, text=True, check=True,
            env={**os.environ, "LC_ALL": name, "PYTHONHASHSEED": str(index)},
        ).stdout
        for index, name in enumerate(["C", "C.UTF-8", "POSIX"])
    }  # fmt: skip
    assert len(digests) == 1
