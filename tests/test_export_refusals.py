"""What export_ffn refuses, and that nothing half-written is left behind."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from blocks import arrays, torch_block
from onnx import numpy_helper

from gelu_fast.export import VerificationError, export_ffn
from gelu_fast.export import graph as graph_module
from gelu_fast.export.verify import check


def test_float64_source_converts_on_request(tmp_path):
    weights = arrays(dtype=np.float64)
    with pytest.raises(NotImplementedError, match=r"float64 weights aren't served yet.*dtype='float32'"):
        export_ffn(weights, tmp_path / "m.onnx")
    assert not any(tmp_path.iterdir())
    report = export_ffn(weights, tmp_path / "m.onnx", dtype="float32")
    assert report.passed
    assert report.sha256 == export_ffn(arrays(), tmp_path / "n.onnx", dtype=np.float32).sha256


def test_mixed_dtypes(tmp_path):
    w1, b1, w2, b2 = arrays()
    mixed = (w1.astype(np.float64), b1, w2, b2)
    with pytest.raises(TypeError, match="mixed dtypes: w1 is float64, b1 is float32"):
        export_ffn(mixed, tmp_path / "m.onnx")
    assert export_ffn(mixed, tmp_path / "m.onnx", dtype="float32").passed


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"approximate": "quick"}, ValueError, "approximate: 'quick' has no standard ONNX operator"),
        ({"approximate": "gelu_new"}, ValueError, "approximate: expected 'none' or 'tanh', got 'gelu_new'"),
        ({"approximate": ["none"]}, ValueError, "approximate: expected"),
        ({"target": "opset 17"}, NotImplementedError, "target: 'opset 17' isn't served yet; .*'opset 20'"),
        ({"target": "onnxruntime>=1.17"}, NotImplementedError, "target: .*isn't served yet"),
        ({"target": "tomorrow"}, ValueError, "target: expected None or 'opset 20', got 'tomorrow'"),
        ({"target": 20}, ValueError, "target: expected .*got 20"),
        ({"form": "erf"}, ValueError, "form: expected 'auto' or 'native' .*got 'erf'"),
        ({"dtype": "float16"}, NotImplementedError, "dtype: float16 isn't served yet; .*'float32'"),
        ({"dtype": "nonsense"}, TypeError, "dtype: expected None or 'float32', got 'nonsense'"),
        ({"external_data": True}, NotImplementedError, "external_data: True isn't served yet"),
        ({"external_data": "yes"}, ValueError, "external_data: expected 'auto' or False, got 'yes'"),
        ({"dims": "batch"}, TypeError, "dims: expected a sequence of names"),
        ({"dims": (1,)}, TypeError, "dims: expected a sequence of names"),
        ({"dims": ()}, ValueError, "dims: expected one or more different names"),
        ({"dims": ("a", "a")}, ValueError, "dims: expected one or more different names"),
        ({"dims": ("two words",)}, ValueError, "dims: .*identifier"),
    ],
)
def test_options_that_are_wrong_or_not_served(tmp_path, options, kind, message):
    with pytest.raises(kind, match=message):
        export_ffn(arrays(), tmp_path / "m.onnx", **options)
    assert not any(tmp_path.iterdir())


def test_options_that_name_what_is_the_default(tmp_path):
    digests = {
        export_ffn(arrays(), tmp_path / "m.onnx", overwrite=True, **options).sha256
        for options in ({}, {"target": "opset 20"}, {"form": "native"}, {"external_data": False}, {"dims": ["batch"]})
    }
    assert len(digests) == 1


def test_formula_that_contradicts_the_module(tmp_path):
    with pytest.raises(ValueError, match="approximate: 'none' was asked for, but the source's own GELU is 'tanh'"):
        export_ffn(torch_block(4, 6, "tanh"), tmp_path / "m.onnx", approximate="none")
    assert export_ffn(torch_block(4, 6, "tanh"), tmp_path / "m.onnx", approximate="tanh").passed


def test_weights_too_large_for_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_module, "MAX_BYTES", 1000)
    with pytest.raises(NotImplementedError, match="external_data: the weights take 8,512 bytes"):
        export_ffn(arrays(), tmp_path / "m.onnx")


def test_paths_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(FileNotFoundError, match=r"path: the directory .*missing doesn't exist"):
        export_ffn(arrays(), tmp_path / "missing" / "m.onnx")
    with pytest.raises(FileNotFoundError, match="path: the directory"):
        export_ffn(arrays(), tmp_path / "file" / "m.onnx")
    with pytest.raises(IsADirectoryError, match=r"path: .* is a directory"):
        export_ffn(arrays(), tmp_path, overwrite=True)
    with pytest.raises(TypeError, match="path: expected the name of a file, got 3"):
        export_ffn(arrays(), 3)
    with pytest.raises(OSError, match="path: can't write in /proc"):  # even root can't
        export_ffn(arrays(), "/proc/m.onnx")
    assert (tmp_path / "file").read_text() == "kept"


def test_existing_file(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_text("kept")
    with pytest.raises(FileExistsError, match=r"path: .*exists already; overwrite=True"):
        export_ffn(arrays(), path)
    assert path.read_text() == "kept"
    report = export_ffn(arrays(), path, overwrite=True)
    assert report.size == path.stat().st_size
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_file_is_readable_by_others_as_the_umask_says(tmp_path):
    before = os.umask(0o022)
    try:
        export_ffn(arrays(), tmp_path / "m.onnx")
    finally:
        os.umask(before)
    assert (tmp_path / "m.onnx").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("fault", ["formula", "transposed", "weight", "bias", "no activation"])
def test_a_model_that_is_wrong_leaves_no_file(tmp_path, monkeypatch, fault):
    """A bug in the building, made by hand, is found by running; what stood there before stays."""
    real = graph_module.build_model

    def wrong(block, approximate, dims):
        model = real(block, "tanh" if fault == "formula" else approximate, dims)
        stored = {tensor.name: tensor for tensor in model.graph.initializer}
        values = {name: numpy_helper.to_array(tensor).copy() for name, tensor in stored.items()}
        if fault == "transposed":
            values["w1"] = np.ascontiguousarray(values["w1"].T)
        elif fault == "weight":
            values["w2"][3, 4] += 1e-5
        elif fault == "bias":
            values["b2"][:] = 0
        elif fault == "no activation":
            gelu = next(node for node in model.graph.node if node.op_type == "Gelu")
            gelu.op_type = "Identity"
            del gelu.attribute[:]
        for name, tensor in stored.items():
            tensor.CopyFrom(numpy_helper.from_array(values[name], name))
        return model

    monkeypatch.setattr(graph_module, "build_model", wrong)
    path = tmp_path / "m.onnx"
    path.write_text("kept")
    with pytest.raises(VerificationError, match=r"m\.onnx: not written") as caught:
        export_ffn(arrays(16, 16), path, overwrite=True)
    report = caught.value.report
    assert report.passed is False
    said = {
        "formula": "those of the 'tanh' formula, expected 'none'", "transposed": "tensor 'w1'",
        "weight": "tensor 'w2': 1 of 256", "bias": "tensor 'b2'", "no activation": "the outputs differ",
    }[fault]  # fmt: skip
    assert said in "; ".join(report.failures)
    assert os.listdir(tmp_path) == ["m.onnx"]
    assert path.read_text() == "kept"


def test_a_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch):
    real, path = check, tmp_path / "m.onnx"

    def slow(*arguments):
        path.write_text("kept")
        return real(*arguments)

    monkeypatch.setattr("gelu_fast.export.exporter.check", slow)
    with pytest.raises(FileExistsError, match="exists already"):
        export_ffn(arrays(), path)
    assert path.read_text() == "kept"
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_an_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gelu_fast.export.exporter.check", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_ffn(arrays(), tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == []


def test_missing_packages_are_named(tmp_path):
    for package in ("onnx", "onnxruntime"):
        code = (
            f"import sys; sys.modules[{package!r}] = None; from gelu_fast.export import export_ffn\n"
            "from gelu_fast.export.sources import random_block\n"
            f"try: export_ffn(random_block(2, 3, 0), {str(tmp_path / 'm.onnx')!r})\n"
            "except ImportError as error: print(error)"
        )
        done = subprocess.run([sys.executable, "-Pc", code], capture_output=True, text=True, check=True)
        assert f"needs {package}," in done.stdout
        assert "pip install 'gelu-fast[onnx]'" in done.stdout
    assert os.listdir(tmp_path) == []


def test_importing_the_exporter_loads_no_heavy_package():
    heavy = "{'onnx', 'onnxruntime', 'torch', 'safetensors'}"
    code = f"import sys, gelu_fast.export; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-Pc", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_module_is_left_as_it_was(tmp_path):
    module = torch_block(4, 6).train()
    before = copy.deepcopy(module.state_dict())
    export_ffn(module, Path(tmp_path, "m.onnx"))
    assert module.training
    assert module.act.training
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
