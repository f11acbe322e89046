"""The NEON and plain C kernels for aarch64: cross-compiled and run under an emulator, against the oracle.

`make test-aarch64` runs this; it needs Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user.
"""

import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from functions import same_bits, sample

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
    sources = [ROOT / "tests/native/run_kernels.c", CPU / "dispatch.c", CPU / "pool.c", *CPU.glob("isa_*.c")]
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
