"""The NEON and plain C kernels for aarch64: cross-compiled and run under an emulator, against the oracle.

`make test-aarch64` runs this; it needs Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user.
"""

import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from functions import FORMS, same_bits, sample

import gelu_fast as gf
from gelu_fast.accuracy.functions import FUNCTIONS, instruction_set
from gelu_fast.accuracy.oracle import oracle
from gelu_fast.bounds import ULP

ROOT = Path(__file__).resolve().parents[1]
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
CPU = ROOT / "gelu_fast/cpu"
FLAGS = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror", "-static"]
pytestmark = pytest.mark.skipif(
    shutil.which(COMPILER) is None or shutil.which(EMULATOR) is None or not (CPU / "dispatch.c").exists(),
    reason="needs the source tree and Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user",
)
DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)  # in the order of dispatch.h
NUMBERS = {name: ["none", "tanh", "quick"].index(f.form) * 3 + f.order for name, f in FUNCTIONS.items()}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("aarch64") / "run_kernels"
    sources = [ROOT / "tests/native/run_kernels.c", *(p for p in CPU.glob("*.c") if p.name != "ufuncs.c")]
    subprocess.run([COMPILER, *FLAGS, f"-I{CPU}", "-o", path, *sources, "-lm"], check=True)
    return path


def run(program, isa, kind, function, *arrays):
    number = str(DTYPES.index(arrays[-1].dtype.type))
    done = subprocess.run(
        [EMULATOR, program, isa, kind, str(NUMBERS[function]), number, str(arrays[-1].size)],
        input=b"".join(a.tobytes() for a in arrays), capture_output=True, check=True,
    )  # fmt: skip
    return np.frombuffer(done.stdout, arrays[-1].dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("isa", ["neon", "baseline"])
def test_float32_bound(program, isa, name):
    function = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    x = np.concatenate([sample(100_000), rng.uniform(-16, 16, 100_000), rng.uniform(-65, 0, 50_000)]).astype(np.float32)
    x = x[np.isfinite(x)]
    exact = oracle(x, function.form, function.order)
    unit = np.ldexp(1.0, np.maximum(np.frexp(np.abs(exact))[1] - 24, -149))
    error = np.abs(run(program, isa, "unary", name, x) - exact) / unit
    assert error.max() <= ULP[function.kind, "float32"], x[error.argmax()]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_same_bits_as_on_this_machine(program, name, dtype):
    """NEON computes what AVX2 does, operation by operation, and plain C is plain C: only the specials could differ."""
    x = sample(20_011, dtype)
    function = FUNCTIONS[name]
    for theirs, ours in (("neon", "avx2"), ("baseline", "baseline")):
        with instruction_set(ours):
            same_bits(run(program, theirs, "unary", name, x), function.ufunc(x))
            if function.order == 1:
                dy = sample(20_011, dtype, seed=1)
                same_bits(run(program, theirs, "product", name, dy, x), function.backward(dy, x))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_forms_have_the_same_bits(program, form, dtype):
    """The fused kernels of NEON and plain C, one row long, against this machine's AVX2 and plain C."""
    a, b, dy = (sample(5_003, dtype, seed=k) for k in range(3))
    for theirs, ours in (("neon", "avx2"), ("baseline", "baseline")):

        def fused(kind, isa=theirs):
            done = subprocess.run(
                [EMULATOR, program, isa, kind, str(FORMS.index(form)), str(DTYPES.index(dtype)), str(a.size)],
                input=b"".join(x.tobytes() for x in (a, b, dy)), capture_output=True, check=True,
            )  # fmt: skip
            return done.stdout[:a.nbytes], done.stdout[a.nbytes:]

        with instruction_set(ours):
            same_bits(np.frombuffer(fused("sum")[0], dtype), gf.bias_gelu(a, b, form))
            dx, dbias = gf.bias_gelu_backward(dy, a, b, form)
            first, second = fused("sum_backward")
            same_bits(np.frombuffer(first, dtype), dx)
            with np.errstate(all="ignore"):
                same_bits(np.frombuffer(second, np.float64).astype(dtype), dbias)
            both = np.concatenate([b, a])  # value, gate
            same_bits(np.frombuffer(fused("gate")[0], dtype), gf.geglu(both, form))
            first, second = (np.frombuffer(part, dtype) for part in fused("gate_backward"))
            same_bits(np.concatenate([second, first]), gf.geglu_backward(dy, both, form))
