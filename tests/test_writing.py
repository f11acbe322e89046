"""Files appear whole or not at all; external data is streamed, listed and hashed."""

import hashlib
import json
import os
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from blocks import arrays

from gelu_fast.export import export_ffn, verify
from gelu_fast.export.sources import read_source

WORK = """
import sys, numpy as np
from gelu_fast.export import export_ffn
rng = np.random.default_rng(int(sys.argv[2]))
w = [rng.standard_normal(s).astype("f4") for s in ((256, 512), (512,), (512, 256), (256,))]
export_ffn(w, sys.argv[1], overwrite=True, verify=False, external_data=sys.argv[3] == "True")
"""


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_external_data(tmp_path, dtype):
    report = export_ffn(arrays(), tmp_path / "m.onnx", dtype=dtype, external_data=True)
    assert report.passed
    model, data = report.files
    assert names(tmp_path) == sorted(["m.onnx", data.name, "m.onnx.manifest.json"])
    assert data.name == f"m.onnx.{digest(data)[:12]}.data"
    listed = json.loads((tmp_path / "m.onnx.manifest.json").read_text())
    assert listed == {"format": 1, "files": [
        {"name": p.name, "size": p.stat().st_size, "sha256": digest(p)} for p in (model, data)
    ]}  # fmt: skip
    assert report.manifest == tmp_path / "m.onnx.manifest.json"
    assert model.stat().st_size < 10_000
    assert report.size == model.stat().st_size + data.stat().st_size
    inside = export_ffn(arrays(), tmp_path / "n.onnx", dtype=dtype)
    for a, b in zip(onnx.load(model).graph.initializer, onnx.load(tmp_path / "n.onnx").graph.initializer, strict=True):
        assert (a.name, a.raw_data) == (b.name, b.raw_data)
    assert inside.operators == report.operators


def test_the_same_bytes_wherever_and_whatever_stood_there(tmp_path):
    (tmp_path / "other").mkdir()
    first = export_ffn(arrays(), tmp_path / "m.onnx", external_data=True)
    second = export_ffn(arrays(), tmp_path / "other" / "m.onnx", external_data=True)
    third = export_ffn(arrays(), tmp_path / "m.onnx", external_data=True, overwrite=True)
    assert first.sha256 == second.sha256 == third.sha256


def test_overwriting_removes_what_is_no_longer_used(tmp_path):
    (tmp_path / "m.onnx.000000000000.data").write_text("someone else's")
    export_ffn(arrays(), tmp_path / "m.onnx", external_data=True)
    old = set(names(tmp_path))
    export_ffn(arrays(seed=1), tmp_path / "m.onnx", external_data=True, overwrite=True)
    assert len(set(names(tmp_path)) - old) == 1
    assert len(names(tmp_path)) == 4
    assert verify(tmp_path / "m.onnx", arrays(seed=1)).passed
    export_ffn(arrays(), tmp_path / "m.onnx", overwrite=True)
    assert names(tmp_path) == ["m.onnx", "m.onnx.000000000000.data"]


def test_what_cannot_be_finished_leaves_nothing(tmp_path, monkeypatch):
    """The manifest has no place: the data and the model, which were moved already, go again."""
    real = os.link

    def link(source, goal):
        if goal.name.endswith("manifest.json"):
            raise FileExistsError(17, "another process was here")
        real(source, goal)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(FileExistsError):
        export_ffn(arrays(), tmp_path / "m.onnx", external_data=True)
    assert names(tmp_path) == []


def test_a_name_of_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match=r"path: .* is a directory"):
        export_ffn(arrays(), f"{tmp_path}/m.onnx/")
    assert names(tmp_path) == []


def test_data_of_someone_else_is_not_replaced_unasked(tmp_path):
    (tmp_path / "first").mkdir()
    data = export_ffn(arrays(), tmp_path / "first" / "m.onnx", external_data=True).files[1]
    (tmp_path / data.name).write_text("someone else's")
    with pytest.raises(FileExistsError, match=r"\.data exists already"):
        export_ffn(arrays(), tmp_path / "m.onnx", external_data=True)
    assert names(tmp_path) == ["first", data.name]
    assert (tmp_path / data.name).read_text() == "someone else's"
    (tmp_path / data.name).write_bytes(data.read_bytes())  # the same: then it serves
    assert export_ffn(arrays(), tmp_path / "m.onnx", external_data=True).passed


def test_a_model_moved_alone(tmp_path):
    """Case 6: below 2 GB one file by default; else a manifest, and verify says what is missing."""
    report = export_ffn(arrays(), tmp_path / "m.onnx", external_data=True)
    (tmp_path / "moved").mkdir()
    (tmp_path / "m.onnx").rename(tmp_path / "moved" / "m.onnx")
    with pytest.raises(FileNotFoundError, match=report.files[1].name):
        verify(tmp_path / "moved" / "m.onnx", arrays())


def test_peak_memory_while_writing(tmp_path):
    """Streamed: less than 1.3 times the weights, which the caller holds already."""
    code = """
import resource, sys, numpy as np
import onnx, onnx.helper, onnx.checker, onnx.shape_inference, onnxruntime
from gelu_fast.export import export_ffn
rng = np.random.default_rng(0)
small = [rng.standard_normal(s).astype("f4") for s in ((4, 8), (8,), (8, 4), (4,))]
export_ffn(small, sys.argv[1] + "/s.onnx", verify=False, external_data=True)
w = [rng.standard_normal(s, dtype=np.float32) for s in ((4096, 16384), (16384,), (16384, 4096), (4096,))]
size = sum(a.nbytes for a in w)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
export_ffn(w, sys.argv[1] + "/m.onnx", verify=False, external_data=True)
print((peak() - before) / size)
"""
    done = subprocess.run([sys.executable, "-Pc", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.3


def test_tied_weights_are_stored_once(tmp_path):
    """Case 8: W2 = W1ᵀ, and two blocks sharing W1."""
    w1, b1, w2, b2 = arrays(48, 160, 48)
    weights = [((w1, b1, w1.T, b2)), (w1, b2[:1].repeat(160), w2, b2)]
    report = export_ffn(weights, tmp_path / "m.onnx")
    assert report.passed
    stored = [t for t in onnx.load(tmp_path / "m.onnx").graph.initializer if len(t.dims) == 2]
    assert [t.name for t in stored] == ["layers.0.w1", "layers.1.w2"]
    assert (tmp_path / "m.onnx").stat().st_size < 2 * w1.nbytes + 10_000
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.zeros((3, 48), np.float32)})[0].shape == (3, 48)
    assert len(read_source(weights).blocks) == 2


@pytest.mark.parametrize("external", [False, True])
def test_killed_in_the_middle(tmp_path, external):
    """The old file or the new one, never half."""
    path = tmp_path / "m.onnx"
    for seed in (0, 1):
        subprocess.run([sys.executable, "-Pc", WORK, str(path), str(seed), str(external)], check=True)
        (tmp_path / f"{seed}").mkdir()
        for file in tmp_path.glob("m.onnx*"):
            (tmp_path / f"{seed}" / file.name).write_bytes(file.read_bytes())
    whole = {digest(tmp_path / f"{seed}" / "m.onnx") for seed in (0, 1)}
    started = time.monotonic()
    subprocess.run([sys.executable, "-Pc", WORK, str(path), "0", str(external)], check=True)
    took = time.monotonic() - started
    for share in (0.5, 0.8, 0.9, 0.95, 1.0):
        process = subprocess.Popen([sys.executable, "-Pc", WORK, str(path), str(round(share * 100) % 2), str(external)])
        time.sleep(share * took)
        process.kill()
        process.wait()
        assert digest(path) in whole
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        assert session.run(None, {"x": np.ones((1, 256), np.float32)})[0].shape == (1, 256)


def test_two_at_once_to_one_path(tmp_path):
    path = tmp_path / "m.onnx"
    started = [
        subprocess.Popen([sys.executable, "-Pc", WORK, str(path), str(seed), "True"]) for seed in (0, 1)
    ]
    assert [p.wait(timeout=120) for p in started] == [0, 0]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.ones((1, 256), np.float32)})[0].shape == (1, 256)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a tmpfs: needs Linux and root")
@pytest.mark.parametrize("external", [False, True])
def test_a_full_disk(tmp_path, external):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", small], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"mounts a tmpfs, which this machine refuses: {mounted.stderr.strip()}")
    try:
        export_ffn(arrays(8, 12), small / "m.onnx")
        before = digest(small / "m.onnx")
        with pytest.raises(OSError, match="No space left"):
            export_ffn(arrays(512, 1024), small / "m.onnx", overwrite=True, external_data=external)
        assert names(small) == ["m.onnx"]
        assert digest(small / "m.onnx") == before
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_folder_that_cannot_be_written(tmp_path):
    code = """
import os, sys, tempfile
from gelu_fast.export import export_ffn
from gelu_fast.export.blocks import random_block
with tempfile.TemporaryDirectory() as folder:
    export_ffn(random_block(2, 3, 0), folder + "/m.onnx", verify=False)  # loads what it needs
if os.geteuid() == 0:
    os.setegid(65534), os.seteuid(65534)  # root may write anywhere
try:
    export_ffn(random_block(2, 3, 0), sys.argv[1], verify=False)
except PermissionError as error:
    print(error)
"""
    tmp_path.chmod(0o555)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    done = subprocess.run(
        [sys.executable, "-Pc", code, str(tmp_path / "m.onnx")], capture_output=True, text=True, check=True
    )
    tmp_path.chmod(0o755)
    assert f"path: can't write in {tmp_path}: Permission denied" in done.stdout
    assert names(tmp_path) == []
