"""The cases of shared/cases/kernels.md that the other files don't prove; and that each of the 22 is proved."""

import ast
import os
import pickle
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from functions import DTYPES, FORMS, same_bits, sample

import gelu_fast as gf

NUMBERS = range(1, 23)
UFUNCS = [getattr(gf.ufuncs, name) for name in gf.ufuncs.__all__]


def python(code, **env):
    """Run code in a fresh interpreter; its standard output."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env={**os.environ, **env}, cwd="/",
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def claimed(text):
    """The numbers that marks on tests claim."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.case":
                    found |= {a.value for a in mark.args}
    return found


def test_every_case_is_claimed():
    found = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        found |= claimed(path.read_text())
    assert found == set(NUMBERS), (set(NUMBERS) - found, found - set(NUMBERS))
    not_a_test = "\n@pytest.mark.case(6)\ndef b(): 'pytest.mark.case(5)'"
    assert claimed("@pytest.mark.case(3, 4)\ndef test_a(): 0" + not_a_test) == {3, 4}


def frozen(array):
    array.flags.writeable = False
    return array


@pytest.mark.case(5)
@pytest.mark.parametrize("form", FORMS)
def test_read_only_everything(form):
    """x, dy, bias and weights, in the fused forms and the block."""
    x, dy, bias = sample(60).reshape(6, 10), sample(60, seed=1).reshape(6, 10), sample(10, seed=2)
    weights = [sample(n, seed=n).reshape(s) for n, s in ((70, (10, 7)), (7, (7,)), (28, (7, 4)), (4, (4,)))]
    weights = [np.nan_to_num(w, posinf=1, neginf=1) for w in weights]

    def run(x, dy, bias, *weights):
        ff = gf.FeedForward(*weights, form)
        with np.errstate(invalid="ignore"):  # BLAS on infinities
            return [gf.bias_gelu(x, bias, form), *gf.bias_gelu_backward(dy, x, bias, form), gf.geglu(x, form),
                    gf.geglu_backward(dy[:, :5], x, form), ff(x), *ff.backward(dy[:, :4], x)]  # fmt: skip

    want = run(*(a.copy() for a in (x, dy, bias, *weights)))
    for found, expected in zip(run(*(frozen(a) for a in (x, dy, bias, *weights))), want, strict=True):
        same_bits(found, expected)
    same_bits(gf.FeedForward(*weights, form).w1, weights[0])


@pytest.mark.case(9)
def test_fork_below_a_thread_pool():
    code = """
import multiprocessing as mp, concurrent.futures as cf
import numpy as np, gelu_fast as gf
gf.set_num_threads(2)
x = np.linspace(-9, 9, 1 << 20, dtype="f4")
expected = gf.gelu(x)
with cf.ThreadPoolExecutor(4) as threads:
    jobs = [threads.submit(gf.gelu, x) for _ in range(8)]
    with mp.get_context("fork").Pool(2) as pool:
        asked = pool.map_async(gf.gelu, [x] * 4)
        jobs += [threads.submit(gf.gelu, x) for _ in range(8)]
        assert all(np.array_equal(y, expected) for y in asked.get(30))
    assert all(np.array_equal(j.result(30), expected) for j in jobs)
print("ok")
"""
    assert python(code) == "ok"


@pytest.mark.case(10)
def test_nothing_flushes_to_zero():
    """After every part was imported and has computed."""
    code = """
import warnings
warnings.simplefilter("ignore")         # other packages' own, while they load
import numpy as np
import gelu_fast as gf, gelu_fast.jit, gelu_fast.torch, gelu_fast.export, gelu_fast.accuracy, gelu_fast.bench
import torch, onnxruntime
x = np.linspace(-20, 20, 1 << 19, dtype="f4")
for backend in (None, "cython", "numba"):
    gf.gelu(x, backend=backend)
gf.torch.gelu(torch.from_numpy(x))
assert np.finfo(float).tiny / 2 != 0 and np.finfo(np.float32).tiny / np.float32(2) != 0
assert (np.array([np.finfo("f4").tiny]) / np.float32(2) != 0).all() and (np.full(99, 1e-308) / 4 != 0).all()
print("ok")
"""
    assert python(code) == "ok"


@pytest.mark.case(12)
def test_a_spawned_process():
    """ufuncs, FeedForward and modules of gelu_fast.torch, there and back."""
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    x = sample(64)
    rng = np.random.default_rng(0)
    ff = gf.FeedForward(*(rng.standard_normal(s).astype("f4") for s in ((4, 8), (8,), (8, 4), (4,))), "tanh")
    module = gf.torch.GELU("quick")
    with get_context("spawn").Pool(1) as pool:
        for ufunc in UFUNCS:
            assert pickle.loads(pickle.dumps(ufunc)) is ufunc
        for ufunc in (gf.ufuncs.gelu, gf.ufuncs.gelu_quick_grad2):
            same_bits(pool.apply(ufunc, (x,)), ufunc(x))
        same_bits(pool.apply(gf.geglu, (x, "tanh")), gf.geglu(x, "tanh"))
        rows = rng.standard_normal((3, 4)).astype("f4")
        same_bits(pool.apply(ff, (rows,)), ff(rows))
        same_bits(pool.apply(module, (torch.from_numpy(x),)).numpy(), gf.gelu(x, "quick"))


@pytest.mark.case(15)
def test_no_home():
    """Import in less than half a second, and Numba, in a fresh process that has nowhere to keep its kernels."""
    pytest.importorskip("numba", reason="needs the extra numba")
    code = """
import time
import numpy as np, gelu_fast as gf
took = time.process_time()
if {numba}:
    x = np.linspace(-9, 9, 1001)
    assert np.allclose(gf.gelu(x, backend="numba"), gf.gelu(x), atol=1e-15)
print(took)
"""
    nowhere = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent/cache", "NUMBA_CACHE_DIR": ""}
    python(code.format(numba=True), **nowhere)
    # The interpreter's start and NumPy included, in time of the CPU: on a busy machine it takes longer.
    assert min(float(python(code.format(numba=False), **nowhere)) for _ in range(3)) < 0.5


@pytest.mark.case(16)
def test_thread_counts_of_others_stay():
    """torch's, BLAS's and OpenMP's, after calls by every way on several of our threads."""
    for module in ("torch", "numba", "threadpoolctl", "scipy"):
        pytest.importorskip(module, reason=f"needs {module}")
    code = """
import numpy as np, torch, threadpoolctl, gelu_fast as gf, gelu_fast.torch, numba.np.ufunc.omppool, scipy.linalg
torch.set_num_threads(2)
def counts():                           # of each copy of OpenMP and BLAS
    return torch.get_num_threads(), {p["filepath"]: p["num_threads"] for p in threadpoolctl.threadpool_info()}
x = np.linspace(-9, 9, 1 << 19, dtype="f4").reshape(512, 1024)
before = counts()
assert len(before[1]) >= 2
gf.set_num_threads(4)
ff = gf.FeedForward(np.ones((1024, 8), "f4"), None, np.ones((8, 4), "f4"), None)
for backend in (None, "cython", "numba"):
    gf.gelu(x, backend=backend)
gf.bias_gelu_backward(x, x, x[0])
ff.backward(ff(x), x)
t = torch.from_numpy(x).requires_grad_()
gf.torch.gelu(t).sum().backward()
with gf.num_threads(1):
    gf.gelu(x)
assert counts() == before, (counts(), before)
assert before[0] == 2
print("ok")
"""
    assert python(code, NUMBA_NUM_THREADS="4", OMP_NUM_THREADS="3") == "ok"


@pytest.mark.case(19)
@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (0, 6), (4, 0, 6)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_everything(shape, dtype):
    x, bias = np.empty(shape, dtype), np.ones(shape[-1:], dtype)
    half = np.empty((*shape[:-1], shape[-1] // 2), dtype)
    results = [ufunc(*[x] * ufunc.nin) for ufunc in UFUNCS]
    flat = [y for r in results for y in (r if isinstance(r, tuple) else (r,))]
    dx, dbias = gf.bias_gelu_backward(x, x, bias)
    flat += [gf.bias_gelu(x, bias), gf.bias_gelu(x, bias, out=np.empty(shape, dtype)), dx]
    if shape[-1] % 2 == 0:
        flat.append(gf.geglu_backward(half, x))
        assert gf.geglu(x).shape == gf.geglu(x, out=half).shape == half.shape
    for y in flat:
        assert (y.shape, y.dtype) == (shape, dtype)
    assert dbias.shape == bias.shape
    assert (dbias == 0).all()
    if dtype in (np.float32, np.float64):
        ff = gf.FeedForward(np.ones((shape[-1], 3), dtype), None, np.ones((3, 2), dtype), np.ones(2, dtype))
        y = ff(x)
        assert y.shape == (*shape[:-1], 2)
        assert [g is None or g.shape for g in ff.backward(y, x)] == [shape, (shape[-1], 3), True, (3, 2), (2,)]


@pytest.mark.case(22)
def test_names_of_other_libraries():
    """By number: what each library computes under a name is the formula that `resolve` finds for it."""
    x = np.array([-3.0, -1.0, -0.3, 0.7, 2.0])
    activations = pytest.importorskip("transformers.activations", reason="needs transformers")
    import torch

    known = 0
    for name in activations.ACT2FN:
        if "gelu" not in name or name in ("gelu_10",):  # gelu_10 is cut off at ±10: no form of ours
            continue
        theirs = activations.ACT2FN[name](torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(theirs, gf.gelu(x, gf.forms.resolve(name)), atol=1e-6, err_msg=name)
        known += 1
    assert known >= 6
    with pytest.raises(ValueError, match="no GELU form is called 'gelu_10'"):
        gf.forms.resolve("gelu_10")


@pytest.mark.case(22)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Keras, of torch's tensors
def test_what_keras_and_jax_mean_by_gelu():
    """keras.activations.gelu is the exact form, keras.ops.gelu and jax.nn.gelu by default the tanh form."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="needs the extra keras")
    x = np.array([-3.0, -1.0, -0.3, 0.7, 2.0], np.float32)

    def close(theirs, form):
        np.testing.assert_allclose(np.asarray(theirs), gf.gelu(x, form), atol=1e-6)

    close(keras.ops.convert_to_numpy(keras.activations.gelu(x)), gf.forms.resolve("gelu"))
    close(keras.ops.convert_to_numpy(keras.ops.gelu(x)), "tanh")
    jax = pytest.importorskip("jax", reason="the rest needs jax")
    close(jax.nn.gelu(x), "tanh")
