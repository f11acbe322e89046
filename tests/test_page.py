"""export_page: the folder, and where what stands in it comes from."""

import base64
import hashlib
import json
import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import oracle
import pytest
from page_models import tensors

import gelu_fast as gf
from gelu_fast.cli import npm
from gelu_fast.cli.page import page_maker
from gelu_fast.export import export_ffn
from gelu_fast.export.loading import load
from gelu_fast.export.own_weights import stack_of
from gelu_fast.export.page import RUNTIME_FILES, export_page
from gelu_fast.export.page_graph import describe
from gelu_fast.export.sources import read_source

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def web(tmp_path):
    """A folder that looks like the npm package, for tests that run nothing."""
    package = tmp_path / "node_modules" / "onnxruntime-web"
    (package / "dist").mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"name": "onnxruntime-web", "version": "1.30.0"}))
    for name in RUNTIME_FILES:
        (package / "dist" / name).write_text(name)
    return tmp_path / "node_modules"


@pytest.fixture
def model(tmp_path):
    export_ffn(tensors(), tmp_path / "m.onnx", target="onnxruntime-web")
    return tmp_path / "m.onnx"


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def stored(folder, entry, name, dtype):
    return np.fromfile(folder / entry[name], dtype)


# The folder


@pytest.mark.parametrize(("formula", "dims"), [("none", ("batch",)), ("tanh", ("batch", "seq")), ("quick", ("n",))])
def test_answers_are_those_of_an_oracle_that_shares_nothing(tmp_path, web, formula, dims):
    blocks = [tensors(out=24), tensors(seed=1)]
    report = export_ffn(blocks, tmp_path / "m.onnx", approximate=formula, dims=dims, target="onnxruntime-web")
    index = export_page(report, tmp_path / "page", onnxruntime_web=web, source=blocks)
    assert index == tmp_path / "page" / "index.html"
    page = json.loads((tmp_path / "page" / "page.json").read_text("utf-8"))
    assert (page["formula"], page["model"], page["sha256"]) == (formula, "m.onnx", report.sha256)
    assert len(page["cases"]) == 4
    for entry in page["cases"]:
        x = stored(tmp_path / "page", entry, "x", "<f4").reshape(entry["shape"])
        assert x.ndim == len(dims) + 1
        y = stored(tmp_path / "page", entry, "y", "<f8")
        want = oracle.feed_forward(x.reshape(-1, 24), blocks, formula).ravel()
        assert np.abs(y - want).max() <= 1e-13 * max(1, np.abs(want).max())
        allowed = stored(tmp_path / "page", entry, "allowed", "<f8")
        other = oracle.feed_forward(x.reshape(-1, 24), blocks, "tanh" if formula == "none" else "none")
        assert (allowed > 0).all()
        if entry["timed"]:  # the other formula is told apart in every random row
            assert (np.abs(other - want.reshape(other.shape)).max(1) > allowed).all()


def test_given_inputs_and_the_same_bytes_twice(tmp_path, web, model):
    x = np.random.default_rng(3).standard_normal((5, 24))
    for name in ("a", "b"):
        export_page(str(model), tmp_path / name, onnxruntime_web=web / "onnxruntime-web", x=x)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    (entry,) = json.loads((tmp_path / "a" / "page.json").read_text("utf-8"))["cases"]
    np.testing.assert_array_equal(stored(tmp_path / "a", entry, "x", "<f4"), x.astype(np.float32).ravel())
    assert entry["timed"]


def test_a_page_stands_by_itself(tmp_path, web):
    report = export_ffn(tensors(), tmp_path / "m.onnx", external_data=True, target="onnxruntime-web")
    export_page(report, tmp_path / "page", onnxruntime_web=web)
    found = contents(tmp_path / "page")
    assert {"index.html", "page.css", "page.mjs", "graph.mjs", "page.json", "m.onnx", report.files[1].name} < set(found)
    assert {f"onnxruntime-web/{name}" for name in (*RUNTIME_FILES, "package.json")} < set(found)
    own = b"".join(found[name] for name in found if name.endswith((".html", ".css", ".mjs")) and "/" not in name)
    hosts = set(re.findall(rb"https?://([\w.]+)", own)) - {b"localhost", b"www.w3.org"}  # SVG's name, nobody asks it
    assert hosts == set()


@pytest.mark.parametrize("form", ["native", "fusable", "contrib", "function", "primitive"])
def test_own_weights_are_read_back(tmp_path, form):
    first, tied = tensors(out=24), list(tensors(out=24, seed=1))
    tied[0] = np.ascontiguousarray(first[2].T)  # stored once, turned
    export_ffn([first, tied, tensors()], tmp_path / "m.onnx", form=form, approximate="tanh")
    want, got = read_source([first, tied, tensors()]), stack_of(load(tmp_path / "m.onnx"))
    assert got.approximate == "tanh"
    assert list(got.tensors) == list(want.tensors)
    for name, array in want.tensors.items():
        np.testing.assert_array_equal(got.tensors[name], array)


def test_graph_marks_gelu_and_what_is_stored(tmp_path):
    export_ffn(tensors(), tmp_path / "m.onnx", form="fusable", approximate="none")
    found = describe(load(tmp_path / "m.onnx").model)
    assert (found["inputs"], found["outputs"]) == (["x"], ["y"])
    assert " ".join(node["op"] for node in found["nodes"]) == "MatMul Add Div Erf Add Mul Mul MatMul Add"
    assert [node["gelu"] for node in found["nodes"]] == [False] * 2 + [True] * 5 + [False] * 2
    assert found["values"]["w1"] == {"shape": "24 × 50", "dtype": "float32", "stored": ""}
    assert found["values"]["hidden"] == {"shape": "batch × 50", "dtype": "float32"}
    export_ffn(tensors(), tmp_path / "p.onnx", form="primitive")
    (cast, *_) = [node for node in describe(load(tmp_path / "p.onnx").model)["nodes"] if node["op"] == "Cast"]
    assert cast["attributes"] == "to=float64"
    root = next(name for name in found["nodes"][2]["inputs"] if name != "hidden")
    assert found["values"][root]["stored"] == "1.41421"


def test_folders_are_replaced_only_where_they_are_pages(tmp_path, web, model):
    goal = tmp_path / "page"
    goal.mkdir()
    (goal / "mine.txt").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="holds other files than a page's"):
            export_page(model, goal, onnxruntime_web=web, overwrite=overwrite)
    assert contents(goal) == {"mine.txt": b"precious"}
    (goal / "mine.txt").unlink()
    export_page(model, goal, onnxruntime_web=web)  # an empty one will do
    before = contents(goal)
    with pytest.raises(FileExistsError, match="exists already; overwrite=True"):
        export_page(model, goal, onnxruntime_web=web, x=np.ones((1, 24)))
    assert contents(goal) == before
    export_page(goal / "m.onnx", goal, onnxruntime_web=web, x=np.ones((1, 24)), overwrite=True)  # its own model
    assert len(json.loads((goal / "page.json").read_text("utf-8"))["cases"]) == 1
    assert "cases/1.x.bin" not in contents(goal)
    with pytest.raises(FileExistsError, match="exists and is no directory"):
        export_page(model, model, onnxruntime_web=web, overwrite=True)
    with pytest.raises(FileNotFoundError, match="doesn't exist"):
        export_page(model, tmp_path / "no" / "page", onnxruntime_web=web)


@pytest.mark.parametrize("there", [False, True])
def test_what_fails_leaves_nothing_half_done(tmp_path, web, model, there):
    goal = tmp_path / "page"
    if there:
        export_page(model, goal, onnxruntime_web=web)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"x: every row of 'given input' comes near float32's overflow"):
        export_page(model, goal, onnxruntime_web=web, x=np.full((2, 24), 3e38), overwrite=True)
    assert contents(tmp_path) == before
    assert goal.exists() == there


def test_refusals(tmp_path, web, model):
    goal = tmp_path / "page"

    def refused(kind, text, given=model, **options):
        with pytest.raises(kind, match=text):
            export_page(given, goal, **({"onnxruntime_web": web} | options))
        assert not goal.exists()

    refused(TypeError, "report_or_path: expected a report of an export, or a path, got int", 3)
    refused(FileNotFoundError, "no file at", tmp_path / "none.onnx")
    refused(FileNotFoundError, "no npm package onnxruntime-web in .*npm install", onnxruntime_web=tmp_path / "nowhere")
    refused(ValueError, r"x: expected 2 axes, the last of 24, got shape \(24,\)", x=np.ones(24))
    refused(TypeError, "x: expected float32 or what converts to it, got complex128", x=np.ones((1, 24), complex))
    refused(ValueError, "x: expected values finite in float32", x=np.full((1, 24), 1e300))
    refused(ValueError, "the model's 'none'", source=gf.FeedForward(*tensors(), "tanh"))
    refused(ValueError, r"'x': expected shape \(…, 23\)", source=tensors(width=23))
    (web / "onnxruntime-web" / "dist" / RUNTIME_FILES[2]).unlink()
    refused(FileNotFoundError, r"lacks ort-wasm-simd-threaded\.wasm")


def test_models_that_a_browser_cant_run_are_refused(tmp_path, web):
    export_ffn(tensors(), tmp_path / "new.onnx", target="opset 27")
    with pytest.raises(ValueError, match=r"opset 27 .* 1\.30\.0 reads up to 26 and 13; export with target='onnxr"):
        export_page(tmp_path / "new.onnx", tmp_path / "page", onnxruntime_web=web)
    export_ffn(tensors(), tmp_path / "b.onnx", dtype="bfloat16")
    with pytest.raises(ValueError, match="goes from bfloat16 to bfloat16; a page runs float16, float32, float64"):
        export_page(tmp_path / "b.onnx", tmp_path / "page", onnxruntime_web=web)
    package = web / "onnxruntime-web" / "package.json"
    package.write_text(json.dumps({"name": "onnxruntime-web", "version": "9.0.0"}))  # who knows what that reads
    export_page(tmp_path / "new.onnx", tmp_path / "page", onnxruntime_web=web)


def test_command_lines_part(tmp_path, web, model, capsys):
    report = export_ffn(tensors(), tmp_path / "n.onnx")
    goal = tmp_path / "a page"
    with page_maker(goal, web, False) as make:
        assert not goal.exists()
        make(report, tensors())
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"gelu-fast: the page: python -m http.server --directory '{goal}', then open http://localhost:8000/\n"
    assert (goal / "index.html").is_file()
    with pytest.raises(FileExistsError, match="exists already"), page_maker(goal, None, False):
        pytest.fail("exported first, and npm asked")
    with page_maker(None, None, False) as make:
        make(report, tensors())
    with pytest.raises(ValueError, match="--onnxruntime-web: expected --page FOLDER"), page_maker(None, web, False):
        pytest.fail("exported first")


# npm, which the command line alone may run


def test_the_exporter_neither_starts_programs_nor_uses_the_network():
    wanted = re.compile(r"\b(subprocess|urllib|http\.client|socket|requests|os\.system|popen)\b")
    found = {path.name for path in (*ROOT.glob("export/*.py"), *ROOT.glob("gelu_fast/cli/*.py"))
             if wanted.search(path.read_text("utf-8"))}  # fmt: skip
    assert found == {"npm.py"}


def test_a_package_is_unpacked_only_with_the_right_hash(tmp_path):
    source = tmp_path / "package"
    (source / "dist").mkdir(parents=True)
    for name in ("package.json", *(f"dist/{name}" for name in RUNTIME_FILES), "dist/other.mjs"):
        (source / name).write_text(name)
    with tarfile.open(tmp_path / "p.tgz", "w:gz") as archive:
        archive.add(source, "package")
    right = base64.b64encode(hashlib.sha512((tmp_path / "p.tgz").read_bytes()).digest()).decode()
    with pytest.raises(ValueError, match=r"of sha512 .*, expected q0y\+"):
        npm.unpack(tmp_path / "p.tgz", tmp_path / "out", npm.SHA512)
    assert not (tmp_path / "out").exists()
    npm.unpack(tmp_path / "p.tgz", tmp_path / "out", right)
    assert set(contents(tmp_path / "out")) == {"package.json", *(f"dist/{name}" for name in RUNTIME_FILES)}


def test_npm_missing_or_failing_is_one_clear_error(monkeypatch, tmp_path):
    said = []
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    if shutil.which("npm"):
        with pytest.raises(ValueError, match=r"npm pack onnxruntime-web@1\.30\.0 failed: .*ECONNREFUSED"), \
             npm.onnxruntime_web(said.append):  # fmt: skip
            pass
        assert said == [
            "fetching onnxruntime-web 1.30.0: npm pack onnxruntime-web@1.30.0 --ignore-scripts --loglevel=error"
        ]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="install npm, or pass --onnxruntime-web FOLDER"), \
         npm.onnxruntime_web(said.append):  # fmt: skip
        pass
