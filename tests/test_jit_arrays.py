"""backend="numba": the front door's tests again, its own refusals, threads and forks (cases 9, 10 and 16)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
import test_api
from functions import same_bits, sample
from numba_functions import UNARY

import gelu_fast as gf
from gelu_fast import views
from gelu_fast.cpu import ufuncs
from gelu_fast.jit import parallel

BIG = (1 << 18) + 13
each_function = pytest.mark.parametrize(("function", "form"), UNARY, ids=lambda v: getattr(v, "__name__", v))


def python(code, **env):
    """Run code in a fresh interpreter; its standard output."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env={**os.environ, **env}, cwd="/",
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@each_function
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_front_door(function, form, dtype):
    test_api.test_strided_views_equal_the_contiguous_copy(function, form, dtype, None)
    test_api.test_a_value_has_the_same_bits_at_any_length_and_offset(function, form, dtype, None)
    test_api.test_byte_order(function, form, dtype)


@each_function
def test_front_door_float32(function, form):
    test_api.test_read_only_input(function, form)
    test_api.test_in_place_and_overlap(function, form, None)
    test_api.test_out_may_be_strided(function, form)


def test_misaligned_memory():
    x = sample(999)
    raw = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)
    assert not raw.flags.aligned
    same_bits(gf.gelu(raw, backend="numba"), gf.gelu(x, backend="numba"))


def test_read_only_memory_stays_as_it_was():
    x, dy = sample(100), sample(100, seed=1)
    frozen = [np.frombuffer(a.tobytes(), np.float32) for a in (dy, x)]
    same_bits(gf.gelu_backward(*frozen, backend="numba"), gf.gelu_backward(dy, x, backend="numba"))
    for a, b in zip(frozen, (dy, x), strict=True):
        same_bits(a, b)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)])
def test_empty(shape):
    for function, form in UNARY:
        assert function(np.empty(shape, np.float32), form).shape == shape
    assert gf.gelu_backward(np.empty(shape), np.empty(shape), backend="numba").shape == shape


def test_scalars_promotion_and_broadcasting():
    for value in (1.0, 1, np.float32(1), np.array(1.0), np.array(1, np.float32), np.int32(3), np.int16(3)):
        ours, numpys = gf.gelu(value, backend="numba"), np.sin(value)
        assert type(ours) is type(numpys)
    assert gf.gelu([[1, 2], [3, 4]], backend="numba").shape == (2, 2)
    dy, x = sample(5), sample(7, seed=1)
    want = np.array([gf.gelu_backward(d, x, backend="numba") for d in dy])
    same_bits(gf.gelu_backward(dy[:, None], x, backend="numba"), want)
    assert gf.gelu_backward(1.0, x, backend="numba").dtype == np.float32
    assert gf.gelu_backward(np.ones(7), x, backend="numba").dtype == np.float64
    out = np.empty(())
    assert gf.gelu(np.array(1.0), out=out, backend="numba") is out
    with pytest.raises(ValueError, match="broadcast"):
        gf.gelu_backward(np.ones(3), np.ones(4), backend="numba")


def test_refusals():
    import ml_dtypes

    for x, name in ((np.ones(3, np.float16), "float16"), (np.ones(3, ml_dtypes.bfloat16), "bfloat16"),
                    (np.ones(3, np.int8), "int8"), (True, "bool")):  # fmt: skip
        with pytest.raises(TypeError, match=rf"{name} .*backend='cython' \(or None\) serves"):
            gf.gelu(x, backend="numba")
    with pytest.raises(TypeError, match="x: backend='numba' takes plain NumPy arrays, got MaskedArray"):
        gf.gelu(np.ma.masked_array([1.0]), backend="numba")
    with pytest.raises(TypeError, match="x: expected bfloat16, float16"):
        gf.gelu(1j, backend="numba")
    with pytest.raises(ValueError, match="backend: expected None, 'cython', 'numba' or 'cuda', got 'jit'"):
        gf.gelu(1.0, backend="jit")
    x = sample(6)
    for out, error, message in (
        (np.full(5, 7, np.float32), ValueError, r"out: expected shape \(6,\), got \(5,\)"),
        (np.full(6, 7, np.float64), ValueError, "out: expected dtype float32, got float64"),
        ([0] * 6, TypeError, "out: expected a NumPy array"),
    ):
        before = np.array(out)
        with pytest.raises(error, match=message):
            gf.gelu(x, out=out, backend="numba")
        assert np.array_equal(before, np.array(out))


# -- threads -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thread_count_does_not_change_bits(dtype, threads):
    x = sample(BIG, dtype)
    for function, form in UNARY:
        threads(1)
        alone = function(x, form)
        threads(2)
        same_bits(function(x, form), alone)
    dy = sample(BIG, dtype, seed=1)
    several = gf.gelu_backward(dy, x, backend="numba")
    threads(1)
    same_bits(several, gf.gelu_backward(dy, x, backend="numba"))


def test_how_many_threads(threads):
    threads(1)
    with parallel.threads(1 << 30) as count:
        assert count == 1
    threads(8)
    most = min(8, numba.get_num_threads())
    with parallel.threads(1 << 30) as count:
        assert count == most
    with parallel.threads(2 * ufuncs.BYTES_PER_THREAD - 1) as count:
        assert count == 1
    with parallel.threads(2 * ufuncs.BYTES_PER_THREAD) as count:
        assert count == min(2, most)


def test_what_a_thread_is_worth_stands_once():
    """In C: what the compiler took for it, where the sources are at hand, is what the Python parts use."""
    header = Path(__file__).parent.parent / "gelu_fast" / "cpu" / "common.h"
    if not header.exists():
        pytest.skip("the tests run outside the source tree")
    product = re.search(r"#define GF_BYTES_PER_THREAD \((\d+) \* (\d+)\)", header.read_text())
    assert int(product[1]) * int(product[2]) == ufuncs.BYTES_PER_THREAD == views.LARGE * 4 // 2


def test_other_thread_counts_are_left_alone():
    """Numba's own, and OpenMP's, which launching Numba's threads sets for the whole process."""
    code = """
import numpy as np, torch, gelu_fast as gf, numba
torch.set_num_threads(1)
assert torch.get_num_threads() == 1  # the first question makes torch set its count: before, nothing could disturb it
before = gf.cpu_info()["usable_threads"]
gf.set_num_threads(2)
x = np.linspace(-9, 9, 1 << 20, dtype="f4")
gf.gelu(x, backend="numba")
print(torch.get_num_threads(), gf.cpu_info()["usable_threads"] == before, numba.get_num_threads())
torch.set_num_threads(2)
numba.set_num_threads(3)
gf.gelu(x, backend="numba")
print(torch.get_num_threads(), numba.get_num_threads())
"""
    assert python(code, OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="4").split() == ["1", "True", "4", "2", "3"]


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_forked_child_answers(layer):
    code = """
import os, time, multiprocessing as mp
import numpy as np, gelu_fast as gf, numba
gf.set_num_threads(2)
x = np.linspace(-9, 9, 1 << 20, dtype="f4")
def run(_):
    return gf.gelu(x, backend="numba")
expected = run(0)
def child():
    begin = time.monotonic()
    ok = np.array_equal(run(0), expected)
    return 0 if ok and time.monotonic() - begin < 3 else 1
def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(child())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
codes = [fork() for _ in range(3)]
with mp.get_context("fork").Pool(2) as pool:
    codes += [int(not np.array_equal(y, expected)) for y in pool.map(run, [0] * 4)]
assert np.array_equal(run(0), expected)
print(codes, numba.threading_layer())
"""
    assert python(code, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2") == f"{[0] * 7} {layer}"


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_many_python_threads_at_once(layer):
    code = """
import threading
import numpy as np, gelu_fast as gf, numba
gf.set_num_threads(2)
x = np.linspace(-9, 9, 1 << 20, dtype="f4")
expected, wrong = gf.gelu(x[:1000], backend="numba"), []
def work():
    for _ in range(20):
        y = gf.gelu(x, backend="numba")
        if not np.array_equal(y[:1000], expected) or y[-1] != 9:
            wrong.append(1)
pool = [threading.Thread(target=work) for _ in range(8)]
for t in pool: t.start()
for t in pool: t.join()
print(len(wrong), numba.threading_layer())
"""
    assert python(code, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2") == f"0 {layer}"


def test_subnormals_stay():
    """Case 10, after a call on several threads."""
    x = np.full(BIG, -13.2, np.float32)
    y = gf.gelu(x, backend="numba")
    assert (y != 0).all()
    assert (np.abs(y) < np.finfo(np.float32).tiny).all()
    assert np.finfo(float).tiny / 2 != 0
    assert np.finfo(np.float32).tiny / np.float32(2) != 0
