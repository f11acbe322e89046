"""Ctrl-C in the middle of every long command: exit code 130, one line, and no file but what was there."""

import contextlib
import os
import pty
import random
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
PROGRAM = [sys.executable, "-Pm", "gelu_fast"]
WIDE = ["--in-features", "1024", "--hidden-features", "4096"]  # 33 MB of weights: some seconds of work
EXTRAS = {"--plot": "matplotlib", "compare": "sklearn"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    subprocess.run([*PROGRAM, "export", *WIDE, "-o", path], check=True, capture_output=True)
    np.savez(path.parent / "x.npz", x=np.random.default_rng(0).standard_normal((256, 1024), np.float32))
    return path


COMMANDS = {
    "export": ["export", *WIDE, "--timing", "--external-data", "-o", "new.onnx"],
    "export over": ["export", *WIDE, "-o", "old.onnx", "--overwrite"],
    "verify": ["verify", "MODEL", *WIDE, "--timing"],
    "inspect": ["inspect", "MODEL"],
    "rewrite": ["rewrite", "MODEL", "--form", "primitive", "-o", "new.onnx"],
    "quantize": ["quantize", "MODEL", "--method", "static", "--calibration", "FEEDS", "-o", "new.onnx"],
    "quantize int4": ["quantize", "MODEL", "--method", "int4", "-o", "old.onnx", "--overwrite"],
    "quantize --compare": ["quantize", "MODEL", "--compare"],
    "compare": ["compare", "-o", "new"],
    "compare --train": ["compare", "--train", "-o", "new"],
    "accuracy": ["accuracy"],
    "accuracy --plot": ["accuracy", "--plot", "new"],
    "accuracy --exhaustive": ["accuracy", "--exhaustive", "gelu", "--output", "new"],
    "bench": ["bench", "--plot", "new.svg", "--json", "new.json", "--markdown", "old.onnx", "--overwrite"],
    "bench --isa": ["bench", "--isa", "avx2", "--json", "new.json"],
}


def interrupted(command, place, after):
    """Exit code, what came on a terminal and on standard output, after SIGINT to the group, as a terminal sends it."""
    master, slave = pty.openpty()
    with open(slave, "wb") as terminal, open(place.parent / f"{place.name}.out", "wb") as out:
        child = subprocess.Popen([*PROGRAM, *command], cwd=place, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=terminal, start_new_session=True)  # fmt: skip
    said = []

    def listen():
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(master, 1 << 16):
                said.append(part)

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        deadline = time.monotonic() + 60
        while not said and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(after)  # the work has begun: it is said
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)
        child.wait(timeout=60)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        listener.join(timeout=10)
        os.close(master)
    printed = place.with_name(f"{place.name}.out").read_text()
    return child.returncode, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(said).decode()), printed


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c(name, model, tmp_path):
    for word, module in EXTRAS.items():
        if word in name:
            pytest.importorskip(module, reason=f"needs {module}")
    command = [{"MODEL": str(model), "FEEDS": str(model.parent / "x.npz")}.get(word, word) for word in COMMANDS[name]]
    (tmp_path / "old.onnx").write_text("old")
    code, said, printed = interrupted(command, tmp_path, random.Random(name).uniform(0.05, 0.6))
    if code == 0 or (code == -signal.SIGINT and printed):  # it was done before, or just then
        assert name in ("inspect", "verify", "rewrite", "export", "export over", "quantize", "quantize int4")
        return
    # -SIGINT: CPython's own, where an interrupt has passed through an extension that runs Python, as at torch's import.
    assert code in (130, -signal.SIGINT), said
    # llvmlite's callbacks print what they swallow.
    assert "Traceback" not in said or "ctypes callback" in said, said
    assert "interrupted" in said.splitlines()[-1], (code, said)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    for path in left - {"old.onnx", "new/gelu.partial.json"}:  # it came a moment after the last step
        assert path == "new.onnx"
        onnxruntime.InferenceSession(tmp_path / path, providers=["CPUExecutionProvider"])
    assert (tmp_path / "old.onnx").read_text() == "old" or "export" in name or "int4" in name
