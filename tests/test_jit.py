"""gelu_fast.jit: accuracy, the compiled code, and gelu_fast's names inside @njit."""

import re
import subprocess
import sys

import numba
import numpy as np
import pytest
import test_accuracy
from functions import FORMS, same_bits, sample
from numba_functions import NINE, NINE_IN_A_LOOP, OnNumba, around

import gelu_fast as gf
from gelu_fast import bounds, jit
from gelu_fast.accuracy import points, sweep
from gelu_fast.accuracy.oracle import oracle
from gelu_fast.accuracy.oracle64 import oracle64
from gelu_fast.accuracy.rounding import ulps32

ISA = gf.cpu_info()["available"][:1]  # sweeps want a name; Numba has its own
# float64 has the same formulas in both.
BOTH = [*((f, "float32") for f in NINE_IN_A_LOOP), *((f, dtype) for f in NINE for dtype in ("float32", "float64"))]
each_of_both = pytest.mark.parametrize(
    ("function", "dtype"), BOTH, ids=[f"{type(f).__name__}-{f.name}-{dtype}" for f, dtype in BOTH]
)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


# -- accuracy ----------------------------------------------------------------------------------------------------------

@each_of_both
def test_stratified(function, dtype):
    x = points.sample(function, dtype, 1 << (21 if dtype == "float32" else 20), seed=3)
    found = sweep.sweep(function, x, ISA)[ISA[0]]
    assert found.count == x.size
    worst = {region: w for region, w in found.worst.items() if region != "root"}
    assert max(w.ulp for w in worst.values()) <= bounds.ULP[function.kind, dtype], worst


@pytest.mark.parametrize(("function", "dtype"), [both for both in BOTH if both[0].order],
                         ids=lambda v: getattr(v, "name", v))  # fmt: skip
def test_next_to_a_root(function, dtype):
    """Either bound: 2 ULP, or the absolute one."""
    x = around(function.root, dtype)
    x = np.concatenate([x, -x]) if function.order == 2 else x
    y = function.ufunc(x).astype(np.float64)
    (high, low), shift = oracle64(x.astype(np.float64), function.form, function.order)
    assert (shift == 0).all()
    error = np.abs((y - high) - low)
    ulp = np.spacing(np.abs(high).astype(dtype)).astype(np.float64)
    allowed = np.maximum(bounds.NUMBA_NEAR_ROOT[dtype], bounds.ULP[function.kind, dtype] * ulp)
    inside = np.abs(np.abs(x) - abs(function.root)) <= bounds.NEAR_ROOT
    assert inside.sum() > 50_000
    assert (error[inside] <= allowed[inside]).all()


@pytest.mark.parametrize("form", FORMS)
@each_dtype
def test_against_mpmath(form, dtype):
    for function in [*NINE, *(NINE_IN_A_LOOP if dtype == "float32" else ())]:
        if function.form == form:
            x, want = test_accuracy.expected(function.name, dtype)
            far = np.ones(x.size, bool)
            if function.order:
                far = np.abs(np.abs(x) - abs(function.root)) > bounds.NEAR_ROOT
            got = function.ufunc(x).tolist()
            errors = [test_accuracy.ref.ulp_error(y, w, dtype) for y, w in zip(got, want, strict=True)]
            assert max(np.array(errors)[far]) <= bounds.ULP[function.kind, dtype]


@pytest.mark.parametrize("form", FORMS)
@each_dtype
def test_backward(form, dtype):
    """IEEE product of dy and the rounded derivative."""
    x, dy = sample(5001, dtype), sample(5001, dtype, seed=1)
    with np.errstate(all="ignore"):
        same_bits(gf.gelu_backward(dy, x, form, backend="numba"), dy * gf.gelu_grad(x, form, backend="numba"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 33])
def test_limits(dtype, n):
    limits = [(np.nan, (np.nan,) * 3), (np.inf, (np.inf, 1, 0)), (-np.inf, (-0.0, 0, 0))]
    limits += [(0.0, (0.0,)), (-0.0, (-0.0,))]
    for function in [*NINE, *NINE_IN_A_LOOP]:
        for value, want in limits:
            if function.order < len(want):
                y = function.ufunc(np.full(n, value, dtype))
                np.testing.assert_array_equal(y, want[function.order])
                if function.order == 0 and value == value:
                    assert (np.signbit(y) == np.signbit(value)).all()


def test_a_sweep_can_fail():
    """The same measure over a wrong function."""

    class Wrong(OnNumba):
        def ufunc(self, x):
            return super().ufunc(x) * np.float32(1 + 2**-21)

    function = Wrong(NINE[0].function)
    assert sweep.sweep(function, points.sample(function, "float32", 1 << 16), ISA)[ISA[0]].max.ulp > 2


# -- compiled code -----------------------------------------------------------------------------------------------------

def loop(function):
    @numba.njit
    def kernel(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    return kernel


@pytest.mark.parametrize("name", jit.__all__)
@each_dtype
def test_a_callers_loop_vectorises(name, dtype):
    kernel = loop(getattr(jit, name))
    x = sample(1003, dtype)
    out = np.empty_like(x)
    kernel(x, out)
    llvm = next(iter(kernel.inspect_llvm().values()))
    # float32's logistic derivatives are computed in double
    wide = dtype == "float64" or re.fullmatch(r"gelu_(tanh|quick)_grad2?", name)
    vector = r"<(4|8) x double>" if wide else r"<(8|16) x float>"
    assert re.search(rf"call {vector} @llvm\.fma", llvm)
    text = llvm.split("define ")[1]
    assert "fast" not in text
    assert "contract" not in text
    assert not re.search(r"\bcall float @(?!llvm)|\bcall double @(?!llvm)", text)  # nothing left to call
    function = getattr(jit, name)
    same_bits(out, np.array([function(v) for v in x], dtype))


def fused(asm):
    return {kind: len(re.findall(rf"\bv{kind}\d*\w*\b", asm)) for kind in ("fmadd", "fnmadd", "fmsub", "fnmsub")}


def test_nothing_is_contracted():
    """A product and a sum that are not written as fma stay two: the compiled loop computes them so."""

    @numba.njit
    def product_and_sum(x, out):
        for i in range(x.size):
            out[i] = x[i] * x[i] - x[i] * np.float32(3)

    x = sample(64)
    product_and_sum(x, np.empty_like(x))
    assert not any(fused(next(iter(product_and_sum.inspect_asm().values()))).values())
    kernel = loop(jit.gelu)
    kernel(x, np.empty_like(x))
    if "avx2" in gf.cpu_info()["available"]:
        assert sum(fused(next(iter(kernel.inspect_asm().values()))).values()) > 20


@pytest.mark.parametrize("function", NINE, ids=lambda f: f.name)
@each_dtype
def test_same_bits_wherever_a_number_stands(function, dtype):
    x = sample(70, dtype)
    alone = np.concatenate([function.ufunc(x[i : i + 1]) for i in range(70)])
    for start in (0, 1, 3, 8):
        for stop in (start + 1, start + 7, 40, 70):
            same_bits(function.ufunc(x[start:stop]), alone[start:stop])


# -- names in compiled code --------------------------------------------------------------------------------------------

def test_scalars():
    for name in jit.__all__:
        function = getattr(jit, name)
        assert function.__name__ == name
        assert "ULP" in function.__doc__
        assert isinstance(function(np.float32(-0.3)), np.float32 | float)
        assert function(1) == function(1.0) == function(True) == function(np.int8(1))
        kernel = numba.njit(lambda x, f=function: f(x))
        assert numba.typeof(kernel(1)) == numba.float64
    x = sample(50)
    one = numba.njit(lambda v: jit.gelu(v))
    one(x[0])
    assert one.nopython_signatures[0].return_type == numba.float32
    for bad in (1j, "a", np.float16(1)):
        with pytest.raises((numba.TypingError, TypeError, NotImplementedError)):
            one(bad)


@pytest.mark.parametrize("form", FORMS)
def test_front_door_names_in_compiled_code(form):
    @numba.njit
    def everything(dy, x):
        if form == "none":
            return gf.gelu(x), gf.gelu_grad(x, "none"), gf.gelu_grad2(x, approximate="none"), gf.gelu_backward(dy, x)
        return gf.gelu(x, form), gf.gelu_grad(x, form), gf.gelu_grad2(x, form), gf.gelu_backward(dy, x, form)

    x, dy = sample(600), sample(600, seed=1)
    grid = x.reshape(20, 30)
    frozen = x.copy()
    frozen.flags.writeable = False
    for view in (x, x[::2], x[::-3], grid, grid.T, np.asfortranarray(grid), grid[::2, ::3], x[:0], frozen,
                 x.astype(np.float64), grid.reshape(2, 3, 100)):  # fmt: skip
        d = np.resize(dy, view.shape).astype(view.dtype)
        got = everything(d, view)
        want = [f(view, form, backend="numba") for f in (gf.gelu, gf.gelu_grad, gf.gelu_grad2)]
        want.append(gf.gelu_backward(d, view, form, backend="numba"))
        for a, b in zip(got, want, strict=True):
            same_bits(a, b)
    assert everything(2.0, 0.7)[3] == 2 * gf.gelu_grad(0.7, form, backend="numba")
    assert everything(np.float32(1), 0.7)[0] == gf.gelu(0.7, form, backend="numba")
    mixed = everything(np.ones(3), np.ones(3, np.float32))[3]
    same_bits(mixed, np.full(3, gf.gelu_grad(1.0, form, backend="numba")))
    assert everything(1.0, 2)[0] == gf.gelu(2.0, form, backend="numba")


def test_refusals_in_compiled_code():
    x = np.ones(3)
    cases = [
        (lambda x: gf.gelu(x, "gelu_new"), "approximate: expected one of 'none', 'tanh', 'quick', got 'gelu_new'"),
        (lambda x: gf.gelu_backward(x, x, "erf"), "approximate: expected one of 'none', 'tanh', 'quick', got 'erf'"),
        (lambda x: gf.gelu(x, str(x.ndim)), "approximate: in compiled code it must be a literal string"),
        (lambda x: gf.gelu_grad(x, "none", out=x), "out: not available in compiled code"),
        (lambda x: gf.gelu(x * 1j), "x: expected float32, float64, an integer, or an array of them"),
        (lambda x: jit.gelu_tanh(x * 1j), "x: expected float32, float64, an integer, or an array of them"),
    ]
    for function, message in cases:
        with pytest.raises(numba.TypingError, match=re.escape(message)):
            numba.njit(function)(x)


def test_the_entry_point_needs_no_import():
    code = """
import numba, numpy as np, gelu_fast
@numba.njit
def f(x):
    return gelu_fast.gelu(x, approximate="tanh")
print(f(1.0), f(np.ones((2, 3)))[1, 2], f(np.float32(1)))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd="/", capture_output=True, text=True)
    assert done.stdout.split()[:2] == ["0.8411919906082768"] * 2, done.stderr


def test_missing_numba_names_the_extra():
    code = """
import sys
sys.modules["numba"] = None
import numpy as np, gelu_fast
for call in (lambda: gelu_fast.gelu(np.ones(3), backend="numba"), lambda: gelu_fast.jit):
    try:
        call()
    except ImportError as error:
        print("pip install 'gelu-fast[numba]'" in str(error))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd="/", capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_float32_against_the_fast_oracle():
    """A million numbers by their bits, evenly over all 2^32."""
    x = (np.arange(1 << 20, dtype=np.uint64) * 4093).astype(np.uint32).view(np.float32)
    for function in [*NINE, *NINE_IN_A_LOOP]:
        with np.errstate(invalid="ignore"):  # signalling nans
            error = ulps32(function.ufunc(x), oracle(x, function.form, function.order))
            if function.order:
                error[np.abs(np.abs(x) - abs(function.root)) <= bounds.NEAR_ROOT] = 0
        assert error.max() <= bounds.ULP[function.kind, "float32"], (function.name, x[error.argmax()])
