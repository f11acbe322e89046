import importlib.metadata
import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from blocks import arrays
from safetensors.numpy import save_file

import gelu_fast
from gelu_fast.cli import run
from gelu_fast.export import graph as graph_module

RANDOM = ["--in-features", "16", "--hidden-features", "24"]


@pytest.fixture
def cli(tmp_path, monkeypatch, capfd):
    """Runs a command in an empty directory; gives the exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        capfd.readouterr()
        code = run([str(a) for a in arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def process(*arguments, code=None, **kwargs):
    command = [sys.executable, "-Pm", "gelu_fast"] if code is None else [sys.executable, "-Pc", code]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, **kwargs)


def test_export_random_block(cli, tmp_path):
    code, out, err = cli("export", *RANDOM, "--seed", 3, "--output", "m.onnx")
    assert (code, err) == (0, "")
    assert os.listdir(tmp_path) == ["m.onnx"]
    lines = dict(line.split(None, 1) for line in out.splitlines())
    assert lines["result"].strip() == "passed"
    assert lines["formula"].strip() == "none (exact)"
    assert "16 → 24 → 16" in lines["block"]
    assert len(lines["sha256"].strip()) == 64


def test_seed(cli):
    digests = [
        json.loads(cli("export", *RANDOM, "--seed", seed, "-o", "m.onnx", "--overwrite", "--json")[1])["sha256"]
        for seed in (0, 1, 0)
    ]
    assert digests[0] == digests[2] != digests[1]


def test_export_json_is_all_that_is_printed(cli):
    code, out, err = cli("export", *RANDOM, "-o", "m.onnx", "--approximate", "tanh", "--dims", "batch, seq", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["passed"] is True
    assert report["formula"] == "tanh"
    assert report["dims"] == ["batch", "seq"]
    assert report["operators"] == ["MatMul", "FastGelu", "MatMul", "Add"]


def test_export_and_verify_weights(cli):
    names = ("w1", "b1", "w2", "b2")
    np.savez("w.npz", **dict(zip(names, arrays(16, 16), strict=True)))
    save_file(dict(zip(names, arrays(16, 16, seed=1), strict=True)), "other.safetensors")
    assert cli("export", "--weights", "w.npz", "-o", "m.onnx", "--opset", 20)[0] == 0
    code, out, _ = cli("verify", "m.onnx", "--weights", "w.npz", "--json")
    assert code == 0
    assert json.loads(out)["passed"] is True
    code, out, _ = cli("verify", "m.onnx", "--weights", "other.safetensors", "--json")
    assert code == 1
    assert json.loads(out)["passed"] is False
    code, out, _ = cli("verify", "m.onnx", "--weights", "other.safetensors")
    assert code == 1
    assert "FAILED" in out
    assert "tensor 'w1': 256 of 256 values differ" in out
    assert cli("verify", "m.onnx", "--weights", "w.npz", "--approximate", "tanh")[0] == 1


def test_parity_that_fails_is_exit_code_1_and_no_file(cli, tmp_path, monkeypatch):
    real = graph_module.build_model
    monkeypatch.setattr(graph_module, "build_model", lambda block, form, plan, dims: real(block, "tanh", plan, dims))
    code, out, err = cli("export", *RANDOM, "-o", "m.onnx", "--json")
    assert code == 1
    assert json.loads(out)["passed"] is False
    assert "m.onnx: not written" in err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", *RANDOM], "--output"),
        (["export", "-o", "m.onnx"], "expected --weights FILE, or both --in-features"),
        (["export", "--in-features", "4", "-o", "m.onnx"], "expected --weights FILE, or both"),
        (["export", *RANDOM, "--weights", "w.npz", "-o", "m.onnx"], "exclude each other"),
        (["export", "--weights", "w.npz", "-o", "m.onnx"], "--weights: no weights file at w.npz"),
        (["export", "--weights", "w.pt", "-o", "m.onnx"], ".npz or .safetensors"),
        (["export", *RANDOM, "-o", "m.onnx", "--opset", "17", "--form", "native"], "form: 'native' needs opset 20"),
        (["export", *RANDOM, "-o", "m.onnx", "--opset", "17", "--target", "opset 17"], "exclude each other"),
        (["export", *RANDOM, "-o", "m.onnx", "--approximate", "relu"], "approximate: expected one of 'none'"),
        (["export", *RANDOM, "-o", "m.onnx", "--dtype", "int8"], "dtype: expected one of float32"),
        (["export", *RANDOM, "-o", "m.onnx", "--target", "tomorrow"], "target: expected 'onnxruntime>=1.17'"),
        (["export", "--in-features", "99999999999", "--hidden-features", "4", "-o", "m.onnx"], "'--in-features': "),
        (["export", *RANDOM, "-o", "pipe", "--overwrite"], "--output: pipe is a device or a pipe, expected"),
        (["export", *RANDOM, "-o", os.fsdecode(b"\xff.onnx")], "--output: expected a name in UTF-8"),
        (["export", *RANDOM, "-o", "listed.onnx"], "--output: listed.onnx.manifest.json exists already"),
        (["export", "--weights", "own.npz", "-o", "own.npz", "--overwrite"], "--output: own.npz holds the weights"),
        (["export", "--weights", "array.npz", "-o", "m.onnx"], "can't read the file: it is no .npz"),
        (["rewrite", "there.onnx", "--form", "fusable", "--dry-run", "-o", "m.onnx"], "--dry-run writes nothing"),
        (["quantize", "there.onnx", "-o", "m.onnx", "--method", "int4", "--float16-io"], "--float16-io belongs to"),
        (["quantize", "there.onnx", "-o", "m.onnx", "--method", "int4", "--batches", "3"], "--batches belongs to"),
        (["inspect", "none.onnx"], "MODEL: no file at none.onnx"),
        (["inspect", "there.onnx"], "there.onnx is not an ONNX model"),
        (["rewrite", "there.onnx", "--form", "fusable"], "expected --output FILE, or --dry-run"),
        (["rewrite", "there.onnx", "--form", "nonsense", "--dry-run"], "form: expected one of 'native'"),
        (["export", *RANDOM, "-o", "m.onnx", "--dims", ""], "dims: "),
        (["export", *RANDOM, "-o", "there.onnx"], "there.onnx exists already; overwrite=True (--ov"),
        (["export", *RANDOM, "-o", "missing/m.onnx"], "--output: the directory missing doesn't exist"),
        (["export", "--in-features", "0", "--hidden-features", "4", "-o", "m.onnx"], "--in-features: expected at "),
        (["verify", "there.onnx", *RANDOM], "there.onnx is not an ONNX model"),
        (["verify", "none.onnx", *RANDOM], "no file at none.onnx"),
        (["verify", "there.onnx"], "expected --weights FILE"),
        (["nonsense"], "nonsense"),
        (["info", "--nonsense"], "nonsense"),
    ],
)
def test_bad_usage_is_exit_code_2_and_one_clear_line(cli, tmp_path, arguments, message):
    (tmp_path / "there.onnx").write_bytes(b"\xff\xff")
    (tmp_path / "listed.onnx.manifest.json").write_text("precious")
    np.savez(tmp_path / "own.npz", **dict(zip(("w1", "b1", "w2", "b2"), arrays(), strict=True)))
    np.save(tmp_path / "array", np.ones(3))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    os.mkfifo(tmp_path / "pipe")
    before = {path.name: path.lstat().st_mtime_ns for path in tmp_path.iterdir()}
    code, out, err = cli(*arguments)
    assert {path.name: path.lstat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert code == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert (tmp_path / "there.onnx").read_bytes() == b"\xff\xff"


def test_overwrite(cli, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"old")
    assert cli("export", *RANDOM, "-o", "m.onnx", "--overwrite")[0] == 0
    assert onnx.load(tmp_path / "m.onnx").producer_name == "gelu_fast"


def test_info(cli):
    code, out, err = cli("info", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["gelu_fast"] == gelu_fast.__version__
    assert found["isa"] == gelu_fast.cpu_info()["isa"]
    assert found["isa"] in found["available"]
    assert found["threads"] == gelu_fast.get_num_threads()
    assert found["packages"]["numpy"] == np.__version__
    assert found["packages"]["onnx"] == importlib.metadata.version("onnx")
    code, out, _ = cli("info")
    assert code == 0
    assert found["isa"] in out
    assert importlib.metadata.version("onnxruntime") in out


def test_info_imports_no_optional_package():
    code = (
        "import sys; from gelu_fast.cli import run; assert run(['info']) == 0;"
        "print(*({'torch', 'onnx', 'onnxruntime', 'numba', 'safetensors'} & set(sys.modules)), file=sys.stderr)"
    )
    done = process(code=code)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_python_m_and_its_exit_codes(tmp_path):
    assert process("info").returncode == 0
    assert "Usage" in process("--help").stdout
    done = process("export", *RANDOM, "-o", "missing/m.onnx", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gelu-fast: --output: ")


def test_output_in_a_narrow_encoding(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = process("export", *RANDOM, "-o", "m.onnx", cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "passed" in done.stdout


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_bare_install_names_the_extra(missing):
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *rest: None if name == {missing!r} else find(name, *rest)\n"
        "from gelu_fast.__main__ import main\n"
        "sys.exit(main())"
    )
    done = process(code=code)
    assert done.returncode == 2
    assert f"needs {missing}, which is not installed: pip install 'gelu-fast[cli]'" in done.stderr
    assert done.stdout == ""


def test_export_without_onnx_names_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['onnx'] = None; from gelu_fast.cli import run;"
        "sys.exit(run(['export', '--in-features', '2', '--hidden-features', '3', '-o', 'm.onnx']))"
    )
    done = process(code=code, cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'gelu-fast[onnx]'" in done.stderr


def test_debug_shows_the_traceback(cli):
    code, out, err = cli("--debug", "inspect", "none.onnx")
    assert (code, out) == (2, "")
    assert "Traceback" in err
    assert "gelu-fast: MODEL: no file at none.onnx" in err
    assert "Traceback" not in cli("inspect", "none.onnx")[2]


def test_a_pipe_gets_no_padding(cli):
    out = cli("export", *RANDOM, "-o", "m.onnx")[1]
    assert all(line == line.rstrip() for line in out.splitlines())


@pytest.mark.parametrize(
    "command", ["export", "verify", "inspect", "rewrite", "quantize", "compare", "accuracy", "bench", "info"]
)
def test_every_help_has_an_example(cli, command):
    code, out, _ = cli(command, "--help")
    assert code == 0
    assert f"gelu-fast {command}" in out
    assert "xample" in out
