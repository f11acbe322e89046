"""The page in a real headless Chromium, served by `python -m http.server`.

The tests run where tests/deploy/setup.sh has put onnxruntime-web and playwright-core, as `make test-deploy` does; with
GELU_FAST_DEPLOY=1 a missing one is a failure.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import runtimes
from page_models import tensors

from gelu_fast.cli import npm
from gelu_fast.export import export_ffn
from gelu_fast.export.page import export_page

DRIVER = Path(__file__).parent / "page" / "open_page.mjs"
DEPLOY = bool(os.environ.get("GELU_FAST_DEPLOY"))


@pytest.fixture
def model(tmp_path):
    export_ffn(tensors(), tmp_path / "m.onnx", target="onnxruntime-web")
    return tmp_path / "m.onnx"


@pytest.fixture(scope="session")
def browser_web():
    """node_modules with the real onnxruntime-web, where the browser is here too."""
    lacks = runtimes.missing("chromium")
    if lacks and not DEPLOY:
        pytest.skip(f"runs after `make test-deploy` has installed the runtimes; missing: {lacks}")
    assert not lacks, f"missing: {lacks}"
    return runtimes.NODE_MODULES


@contextlib.contextmanager
def served(folder):
    """The address of a plain `python -m http.server`."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            port = re.search(r"port (\d+)", server.stdout.readline())[1]
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.kill()


def shown(folder, **environment):
    """What the page shows, after it has done its work."""
    with served(folder) as address:
        command = ["node", str(DRIVER), str(runtimes.NODE_MODULES), shutil.which("chromium"), address]
        environment = os.environ | environment
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout) | {"address": address}


PAGES = {
    "float32 native": ({}, {}),
    "float32 3-D function tanh": ({"form": "function", "dims": ("batch", "sequence_length")}, {"approximate": "tanh"}),
    "float64 primitive": ({"dtype": "float64"}, {}),
    "float16 quick": ({"dtype": "float16"}, {"approximate": "quick"}),
    "external data": ({"external_data": True, "form": "fusable"}, {}),
}


@pytest.mark.parametrize("name", PAGES)
def test_page_shows_parity_latency_and_graph(browser_web, tmp_path, name):
    options, formula = PAGES[name]
    report = export_ffn(tensors(), tmp_path / "m.onnx", target="onnxruntime-web", **options, **formula)
    export_page(report, tmp_path / "page", onnxruntime_web=browser_web, source=tensors())
    page = shown(tmp_path / "page")
    assert (page["state"], page["verdict"]) == ("passed", "✓ passed"), page
    assert page["problems"] == page["console"] == []
    assert "has the hash that it was exported with" in page["detail"]
    assert page["heading"] == "m.onnx"
    assert report.sha256 in page["text"]
    assert "float64, of the source's own weights" in page["text"]

    # No outside request, and none would get through.
    assert all(url.startswith(page["address"]) for url in page["requests"])
    assert page["elsewhere"] == "TypeError"
    assert "Content Security Policy" in page["refusal"]

    assert [row[1] for row in page["parity"]] == ["✓ passed"] * 4
    assert all(0 < float(row[2]) < (1 if "16" in name else 1e-4) for row in page["parity"])
    for latency in (page["latency"], page["again"]):
        assert [row[0] for row in latency] == [row[0] for row in page["parity"][:3]]
        assert all(re.fullmatch(r"[\d.]+ (µs|ms)", row[1]) for row in latency)

    nodes = json.loads((tmp_path / "page" / "page.json").read_text("utf-8"))["graph"]["nodes"]
    assert len(page["boxes"]) == len(nodes) + 2
    assert sum(box["gelu"] for box in page["boxes"]) == sum(node["gelu"] for node in nodes) >= 1
    assert [row[0] for row in page["nodes"]] == [node["op"] for node in nodes]
    assert page["edges"] >= len(nodes) + 1
    for one, two in itertools.combinations([box["box"] for box in page["boxes"]], 2):
        apart = [a[0] + a[2] <= b[0] or a[1] + a[3] <= b[1] for a, b in ((one, two), (two, one))]
        assert any(apart), (one, two)
    for box in page["boxes"]:
        assert all(text["width"] <= box["box"][2] for text in box["texts"]), box

    # Narrow and wide; light and dark; no colours.
    assert all(content <= window for content, window in page["widths"].values())
    assert set(page["widths"]) == {"1280", "320"}
    for scheme, texts in page["schemes"].items():
        assert min(text["contrast"] for text in texts) >= 4.5, scheme
        assert all(text["grey"] for text in texts)
    assert page["schemes"]["light"][0]["paper"] == [255, 255, 255]
    assert max(page["schemes"]["dark"][0]["paper"]) < 50


def test_page_in_a_browser_without_float16_arrays(browser_web, tmp_path):
    export_ffn(tensors(), tmp_path / "m.onnx", dtype="float16", target="onnxruntime-web")
    export_page(tmp_path / "m.onnx", tmp_path / "page", onnxruntime_web=browser_web, x=np.ones((3, 24)))
    page = shown(tmp_path / "page", NO_FLOAT16ARRAY="1")
    assert page["state"] == "passed", page["detail"]
    assert 0 < float(page["parity"][0][2]) < 1


def test_page_of_weights_that_the_file_holds_says_so(browser_web, tmp_path):
    # Far more operators than a picture can show.
    blocks = [tensors(out=24, seed=seed) for seed in range(4)]
    export_ffn(blocks, tmp_path / "m.onnx", form="primitive", target="onnxruntime-web")
    export_page(tmp_path / "m.onnx", tmp_path / "page", onnxruntime_web=browser_web, x=np.ones((2, 24)))
    page = shown(tmp_path / "page")
    assert page["state"] == "passed", page["detail"]
    assert "float64, of the weights that stand in the file" in page["text"]
    assert page["boxes"] == []
    assert page["list"]
    assert "too many for a picture" in page["text"]
    assert len(page["nodes"]) > 150
    assert len(page["parity"]) == len(page["latency"]) == 1


def tamper(folder, what):
    """Plant a fault; what the page has to say of it."""
    page = json.loads((folder / "page.json").read_text("utf-8"))
    entry = page["cases"][1]
    y = np.fromfile(folder / entry["y"], "<f8")
    if what == "answer":
        y[17] += 2e-3
        y.tofile(folder / entry["y"])
        return "1 of 4 kinds of input differ: largest error 0.00200"
    if what == "nan":
        y[3] = np.nan
        y.tofile(folder / entry["y"])
        return "1 of 4 kinds of input differ: largest error NaN"
    if what == "model":
        content = bytearray((folder / "m.onnx").read_bytes())
        content[len(content) // 2] ^= 1
        (folder / "m.onnx").write_bytes(content)
        return "m.onnx has SHA-256"
    if what == "missing":
        (folder / entry["x"]).unlink()
        return "cases/1.x.bin: HTTP 404"
    page["cases"][1]["features"] = 5
    (folder / "page.json").write_text(json.dumps(page), "utf-8")
    return "1 of 4 kinds of input differ"


@pytest.mark.parametrize("what", ["answer", "nan", "model", "missing", "shape"])
def test_page_says_what_is_wrong(browser_web, model, tmp_path, what):
    export_page(model, tmp_path / "page", onnxruntime_web=browser_web)
    text = tamper(tmp_path / "page", what)
    page = shown(tmp_path / "page")
    assert page["state"] == "failed"
    assert page["verdict"].startswith("✗ FAILED")
    assert text in page["detail"]
    assert page["problems"] == []
    if what in ("answer", "nan", "shape"):
        assert [row[1] for row in page["parity"]] == ["✓ passed", "✗ FAILED", "✓ passed", "✓ passed"]


@pytest.mark.parametrize("what", ["bias", "formula"])
def test_page_of_a_wrong_model_fails(browser_web, tmp_path, what):
    w1, b1, w2, b2 = tensors()
    if what == "bias":
        model = export_ffn((w1, b1, w2, b2 + np.float32(1e-3)), tmp_path / "m.onnx", target="onnxruntime-web")
    else:
        model = export_ffn((w1, b1, w2, b2), tmp_path / "m.onnx", approximate="tanh", target="onnxruntime-web")
        stated = b"gelu_fast.formula\x12\x04"
        content = (tmp_path / "m.onnx").read_bytes()
        assert content.count(stated + b"tanh") == 1
        (tmp_path / "m.onnx").write_bytes(content.replace(stated + b"tanh", stated + b"none"))  # a lie
    export_page(model, tmp_path / "page", onnxruntime_web=browser_web, source=(w1, b1, w2, b2))
    page = shown(tmp_path / "page")
    assert page["state"] == "failed"
    assert "4 of 4 kinds of input differ" in page["detail"]


@pytest.mark.skipif(not DEPLOY, reason="downloads from npm: runs with GELU_FAST_DEPLOY=1, as in `make test-deploy`")
def test_npm_gives_the_package_that_the_page_knows(tmp_path, model):
    said = []
    with npm.onnxruntime_web(said.append) as folder:
        export_page(model, tmp_path / "page", onnxruntime_web=folder)
    assert not folder.exists()
    assert len(said) == 1
    assert shown(tmp_path / "page")["state"] == "passed"
