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

from gelu_fast.export import VerificationError, export_ffn, writing
from gelu_fast.export import graph as graph_module
from gelu_fast.export.verify import check


def test_dtype_converts_the_weights(tmp_path):
    weights = arrays(dtype=np.float64)
    assert export_ffn(weights, tmp_path / "wide.onnx").dtype == "float64"
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
        ({"approximate": "gelu_new"}, ValueError, "approximate: expected one of 'none', 'tanh', 'quick', got 'gelu_"),
        ({"approximate": ["none"]}, ValueError, "approximate: expected"),
        ({"target": "opset 12"}, ValueError, "target: expected an opset from 13"),
        ({"target": "onnxruntime==1.2"}, ValueError, "target: expected onnxruntime 1.17 or later, got 1.2"),
        ({"target": "tomorrow"}, ValueError, "target: expected 'onnxruntime>=1.17'.*got 'tomorrow'"),
        ({"target": 20}, TypeError, "target: expected .*got 20"),
        ({"target": "opset 17", "form": "native"}, ValueError, "form: 'native' needs opset 20"),
        ({"form": "native", "approximate": "quick"}, ValueError, "form: 'native' has no quick formula"),
        ({"form": "native", "dtype": "float64"}, ValueError, "no float64 kernel for Erf.*'primitive' works"),
        ({"form": "erf"}, ValueError, "form: expected 'auto', 'native'.*got 'erf'"),
        ({"dtype": "int8"}, ValueError, "dtype: expected one of float32, float64, float16, bfloat16, got int8"),
        ({"dtype": "nonsense"}, TypeError, "dtype: expected None or one of float32.*got 'nonsense'"),
        ({"external_data": "yes"}, ValueError, "external_data: expected 'auto', True or False, got 'yes'"),
        ({"dims": "batch"}, TypeError, "dims: expected a sequence of names"),
        ({"dims": (1,)}, TypeError, "dims: expected a sequence of names"),
        ({"dims": ()}, ValueError, "dims: expected one or more different names"),
        ({"dims": ("a", "a")}, ValueError, "dims: expected one or more different names"),
        ({"dims": ("two words",)}, ValueError, "dims: .*identifier"),
    ],
)
def test_options_that_are_wrong(tmp_path, options, kind, message):
    with pytest.raises(kind, match=message):
        export_ffn(arrays(), tmp_path / "m.onnx", **options)
    assert not any(tmp_path.iterdir())


def test_options_that_name_what_is_the_default(tmp_path):
    plain, *others = (
        export_ffn(arrays(), tmp_path / "m.onnx", overwrite=True, **options)
        for options in (
            {},
            {"target": "onnxruntime"},
            {"form": "native"},
            {"external_data": False},
            {"dims": ["batch"]},
        )
    )
    assert {report.sha256 for report in others} == {plain.sha256}


def test_formula_that_contradicts_the_module(tmp_path):
    with pytest.raises(ValueError, match="approximate: 'none' was asked for, but the source's own GELU is 'tanh'"):
        export_ffn(torch_block(4, 6, "tanh"), tmp_path / "m.onnx", approximate="none")
    assert export_ffn(torch_block(4, 6, "tanh"), tmp_path / "m.onnx", approximate="tanh").passed


def test_weights_too_large_for_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="external_data: the weights take 8,512 bytes"):
        export_ffn(arrays(), tmp_path / "m.onnx", external_data=False)
    assert len(export_ffn(arrays(), tmp_path / "m.onnx").files) == 2


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
    real, real_fill = graph_module.build_model, writing.fill

    def wrong(stack, approximate, plan, dims):
        model = real(stack, "tanh" if fault == "formula" else approximate, plan, dims)
        if fault == "no activation":
            gelu = next(node for node in model.graph.node if node.op_type == "Gelu")
            gelu.op_type = "Identity"
            del gelu.attribute[:]
        return model

    def fill(model, tensors):
        values = {name: array.copy() for name, array in tensors.items()}
        if fault == "transposed":
            values["w1"] = np.ascontiguousarray(values["w1"].T)
        elif fault == "weight":
            values["w2"][3, 4] += 1e-5
        elif fault == "bias":
            values["b2"][:] = 0
        real_fill(model, values)

    monkeypatch.setattr(graph_module, "build_model", wrong)
    monkeypatch.setattr(writing, "fill", fill)
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

    def slow(*arguments, **options):
        path.write_text("kept")
        return real(*arguments, **options)

    monkeypatch.setattr("gelu_fast.export.exporter.check", slow)
    with pytest.raises(FileExistsError, match="exists already"):
        export_ffn(arrays(), path)
    assert path.read_text() == "kept"
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_an_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_, **__):
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
