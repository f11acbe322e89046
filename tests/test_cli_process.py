"""The command line as a process: exit codes, closed streams, signals, terminals."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import gelu_fast

pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and descriptors of POSIX")
PROGRAM = f"{sys.executable} -Pm gelu_fast"
RANDOM = "--in-features 8 --hidden-features 16"


def shell(line, folder):
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("info | true; exit ${PIPESTATUS[0]}", 141),
        ("--help | true; exit ${PIPESTATUS[0]}", 141),
        ("info --json >/dev/full", 2),
        ("info >&-", 0),
        ("inspect nope >&- 2>&-", 2),
        (f"export {RANDOM} -o m.onnx >&- 2>&-", 0),
    ],
)
def test_streams_that_take_nothing(line, expected, tmp_path):
    if "PIPESTATUS" in line:  # a reader that is gone for sure
        line = line.replace("| true", "| { exec <&-; sleep 1; }").replace(f"{PROGRAM} ", "")
        line = f"(sleep 0.3; {PROGRAM} {line.split(' |')[0]}) |" + line.split("|", 1)[1]
    else:
        line = f"{PROGRAM} {line}"
    code, _, err = shell(line, tmp_path)
    assert code == expected, err
    assert "Traceback" not in err
    assert "Exception" not in err


def test_an_error_never_goes_to_standard_output(tmp_path):
    assert shell(f"{PROGRAM} inspect nope --json 2>&-", tmp_path)[:2] == (2, "")


def test_version(tmp_path):
    assert shell(f"{PROGRAM} --version", tmp_path) == (0, f"{gelu_fast.__version__}\n", "")


def test_a_size_that_does_not_fit_into_memory(tmp_path):
    code, out, err = shell(f"{PROGRAM} export --in-features 2000000 --hidden-features 2000000 -o m.onnx", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("gelu-fast: Unable to allocate")
    assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("after", [0.05, 0.15, 0.3])
def test_sigterm_leaves_nothing(after, tmp_path):
    line = f"exec {PROGRAM} export --in-features 1024 --hidden-features 4096 --external-data -o m.onnx"
    child = subprocess.Popen(["bash", "-c", line], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not os.listdir(tmp_path) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(after)
    child.terminate()
    _, err = child.communicate(timeout=60)
    assert child.returncode in (0, 128 + signal.SIGTERM)
    if child.returncode:
        assert (err, os.listdir(tmp_path)) == ("", [])


def test_sigterm_ends_the_child_of_bench_isa(tmp_path):
    if "avx2" not in json.loads(shell(f"{PROGRAM} info --json", tmp_path)[1])["available"]:
        pytest.skip("needs AVX2")
    child = subprocess.Popen(["bash", "-c", f"exec {PROGRAM} bench --isa avx2"], cwd=tmp_path,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    child.stderr.readline()  # it has begun
    child.terminate()
    child.communicate(timeout=30)  # nobody holds the pipes open
    assert child.returncode == 128 + signal.SIGTERM


def test_nothing_is_drawn_where_there_is_no_terminal(tmp_path):
    code, _, err = shell(f"{PROGRAM} export {RANDOM} -o m.onnx && {PROGRAM} quantize m.onnx --compare --json", tmp_path)
    assert (code, err) == (0, "")
