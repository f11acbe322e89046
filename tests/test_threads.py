"""Threads, forks, the floating-point environment, and what import and dispatch do (cases 9-11, 16, 18)."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import threadpoolctl
from conftest import ISAS
from functions import DTYPES, UNARY, same_bits, sample

import gelu_fast as gf

BIG = 1 << 20


def python(code, **env):
    """Run code in a fresh interpreter; its standard output."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env={**os.environ, **env}, cwd="/",
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("dtype", DTYPES)
def test_thread_count_does_not_change_bits(dtype, threads, isa):
    x = sample(BIG + 13, dtype)
    for function, form in UNARY:
        threads(1)
        alone = function(x, form)
        for count in (2, 3, 7):
            threads(count)
            same_bits(function(x, form), alone)
    threads(1)
    dy = sample(BIG + 13, dtype, seed=1)
    alone = gf.gelu_backward(dy, x)
    threads(2)
    same_bits(gf.gelu_backward(dy, x), alone)
    same_bits(gf.gelu_backward(dy[::2], x[::2]), alone[::2])


@pytest.mark.case(18)
def test_settings(threads):
    threads(3)
    assert gf.get_num_threads() == gf.cpu_info()["threads"] == 3
    with gf.num_threads(1):
        assert gf.get_num_threads() == gf.cpu_info()["usable_threads"] == 1
    assert gf.get_num_threads() == 3
    with pytest.raises(RuntimeError), gf.num_threads(2):
        raise RuntimeError
    assert gf.get_num_threads() == 3
    for bad, error in ((0, ValueError), (-1, ValueError), (True, ValueError), (1.5, TypeError), ("2", TypeError)):
        with pytest.raises(error, match="n: expected"):
            gf.set_num_threads(bad)
    assert gf.get_num_threads() == 3


@pytest.mark.case(18)
@pytest.mark.skipif(not gf.cpu_info()["openmp"], reason="built without OpenMP: there are no limits to obey")
def test_limits_of_others_are_obeyed(threads):
    threads(8)
    with threadpoolctl.threadpool_limits(1):
        assert gf.cpu_info()["usable_threads"] == 1
    assert python("import gelu_fast as gf; print(gf.cpu_info()['usable_threads'])", OMP_NUM_THREADS="1") == "1"


@pytest.mark.case(16)
def test_torch_keeps_its_threads(threads):
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        threads(1)
        gf.gelu(sample(BIG))
        threads(4)
        gf.gelu(sample(BIG))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.case(9)
def test_forked_child_answers():
    code = """
import os, sys, time, threading
import numpy as np, gelu_fast as gf
gf.set_num_threads(2)
x = np.linspace(-9, 9, 1 << 20, dtype="f4")
expected = gf.gelu(x)
def child():
    begin = time.monotonic()
    ok = np.array_equal(gf.gelu(x), expected) and gf.cpu_info()["usable_threads"] == 1
    return 0 if ok and time.monotonic() - begin < 1 else 1
def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(child())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
codes = [fork() for _ in range(3)]
t = threading.Thread(target=lambda: gf.gelu(x)); t.start(); t.join()
codes.append(fork())
wrong = np.flatnonzero(gf.gelu(x) != expected)
assert not wrong.size, (wrong.size, wrong[:3], wrong[-3:])
assert gf.cpu_info()["usable_threads"] == 2, (gf.cpu_info(), os.environ)
print(codes)
"""
    assert python(code) == "[0, 0, 0, 0]"


@pytest.mark.case(9)
def test_multiprocessing_fork():
    code = """
import multiprocessing as mp
import numpy as np, gelu_fast as gf
x = np.linspace(-9, 9, 1 << 20, dtype="f4")
expected = gf.gelu(x)
with mp.get_context("fork").Pool(2) as pool:
    assert all(np.array_equal(y, expected) for y in pool.map(gf.gelu, [x] * 4))
print("ok")
"""
    assert python(code) == "ok"


def test_many_python_threads_at_once():
    x = sample(BIG)
    expected = gf.gelu(x)
    wrong = []

    def work():
        for _ in range(5):
            if not np.array_equal(gf.gelu(x), expected, equal_nan=True):
                wrong.append(1)

    pool = [threading.Thread(target=work) for _ in range(8)]
    for t in pool:
        t.start()
    for t in pool:
        t.join()
    assert not wrong


def test_gil_is_released(threads):
    threads(1)
    x = np.ones(1 << 24, np.float64)
    ticks, done = [], threading.Event()

    def count():
        while not done.is_set():
            ticks.append(1)
            done.wait(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    try:
        for _ in range(20):  # on a busy machine one call may pass with the counter asleep
            before = len(ticks)
            gf.ufuncs.gelu(x, out=x)
            if (during := len(ticks) - before) >= 3:
                break
    finally:
        done.set()
        counter.join()
    assert during >= 3  # with the GIL held, one at the most


@pytest.mark.case(2)
def test_no_floating_point_warnings(isa):
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, -14.2, -13.3, -40, -1e4, 65504]
    with np.errstate(all="raise"):
        for dtype in DTYPES:
            with np.errstate(over="ignore", under="ignore"):
                x = np.array(special * 9).astype(dtype)
            for function, form in UNARY:
                function(x, form)
                function(x[::2], form)
            gf.gelu_backward(x, x)
            gf.gelu_backward(np.full_like(x, np.inf), x)


@pytest.mark.case(10)
def test_floating_point_state_is_left_alone():
    code = """
import gelu_fast as gf, numpy as np, gelu_fast.cpu.ufuncs, torch
x = np.linspace(-20, 20, 1 << 20, dtype="f4")
expected = gf.gelu(x)
assert np.finfo(float).tiny / 2 != 0 and np.finfo(np.float32).tiny / np.float32(2) != 0
assert ((expected != 0) & (abs(expected) < np.finfo("f4").tiny)).any()
torch.set_flush_denormal(True)          # the caller's state: kept, but the kernels do not run in it
assert np.array_equal(gf.gelu(x), expected)
assert np.finfo(np.float32).tiny / np.float32(2) == 0
print("ok")
"""
    assert python(code) == "ok"


@pytest.mark.case(11)
@pytest.mark.parametrize("name", ISAS)
def test_isa_by_environment(name):
    assert python("import gelu_fast as gf; print(gf.cpu_info()['isa'])", GELU_FAST_ISA=name) == name


@pytest.mark.parametrize("name", ["sse9", "AVX2", "neon" if "avx2" in ISAS else "avx2"])
def test_unknown_isa_is_refused(name):
    done = subprocess.run([sys.executable, "-c", "import gelu_fast"], env={**os.environ, "GELU_FAST_ISA": name},
                          cwd="/", capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode != 0
    assert f"GELU_FAST_ISA: '{name}' is not available on this machine; available are {', '.join(ISAS)}" in done.stderr


def test_import_is_light():
    code = """
import sys, gelu_fast
heavy = {"torch", "onnx", "onnxruntime", "numba", "scipy", "typer", "rich", "gelu_fast.export"}
print(sorted(heavy & set(sys.modules)))
"""
    assert python(code) == "[]"


def test_import_time():
    """Under 80 ms of the CPU beyond NumPy's own import; the best of several runs: a busy machine does not matter."""
    code = "import numpy, time; t = time.process_time(); import gelu_fast; print(time.process_time() - t)"
    assert min(float(python(code)) for _ in range(5)) < 0.080


