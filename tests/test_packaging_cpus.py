"""On CPUs that lack instructions, emulated: the right set is chosen by itself, and gives this machine's bits.

An instruction that the CPU has not ends the interpreter with SIGILL. `make test-old-cpus` runs more tests so.
"""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import ISAS

EMULATOR = "qemu-x86_64"
pytestmark = pytest.mark.skipif(
    shutil.which(EMULATOR) is None or "avx2" not in ISAS,
    reason="needs an x86-64 CPU with AVX2 and Debian's emulator: apt-get install qemu-user",
)
CODE = """
import hashlib, sys
import numpy as np
import gelu_fast as gf
from gelu_fast.cpu import ufuncs as cpu
if sys.argv[1:]:
    cpu._select_isa(sys.argv[1])
rng = np.random.default_rng(0)
x = rng.standard_normal(1 << 17) * rng.choice([0.3, 1, 4, 20], 1 << 17)
x[:6] = np.inf, -np.inf, np.nan, 0.0, -0.0, -5.5
digest = hashlib.sha256()
with np.errstate(all="ignore"):
    digest.update(np.nan_to_num(gf.gelu(x.astype("f4")), nan=7).tobytes())  # long enough for threads
    x = x[:1 << 14]
    for dtype in ("f2", "f4", "f8"):
        a = x.astype(dtype)
        for form in ("none", "tanh", "quick"):
            for f in (gf.gelu, gf.gelu_grad, gf.gelu_grad2):
                digest.update(np.nan_to_num(f(a, form), nan=7).tobytes())
                digest.update(np.nan_to_num(f(a[::3], form), nan=7).tobytes())
            digest.update(np.nan_to_num(gf.gelu_backward(a, a, form), nan=7).tobytes())
            digest.update(np.nan_to_num(gf.geglu(a, form), nan=7).tobytes())
print(gf.cpu_info()["isa"], digest.hexdigest())
"""


def run(*command):
    env = {name: value for name, value in os.environ.items() if name != "GELU_FAST_ISA"}  # of `make test-baseline`
    done = subprocess.run([*command], cwd="/", env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.split()


@pytest.mark.parametrize(("cpu", "isa"), [("Nehalem", "baseline"), ("Haswell", "avx2")])
def test_chosen_by_itself_with_the_same_bits(cpu, isa):
    here = run(sys.executable, "-c", CODE, isa)
    assert here[0] == isa
    assert run(EMULATOR, "-cpu", cpu, sys.executable, "-c", CODE) == here


def test_what_the_cpu_lacks_is_refused():
    done = subprocess.run([EMULATOR, "-E", "GELU_FAST_ISA=avx2", "-cpu", "Nehalem", sys.executable, "-c",
                           "import gelu_fast"], cwd="/", capture_output=True, text=True, timeout=400)  # fmt: skip
    assert done.returncode == 1
    assert "GELU_FAST_ISA: 'avx2' is not available on this machine; available are baseline" in done.stderr
