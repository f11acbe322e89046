"""Numba's float32 loops over vectors: bit for bit the C kernels', at every length, on each instruction set; their code.

With GELU_FAST_EXHAUSTIVE=1 every one of the 2^32 numbers is compared, in each function: some minutes.
"""

import os
import re
import subprocess
import sys

import numba
import numpy as np
import pytest
from functions import FORMS, UNARY, same_bits, sample

import gelu_fast as gf
from gelu_fast.accuracy.functions import FUNCTIONS, instruction_set
from gelu_fast.jit import piecewise, vectors
from gelu_fast.jit.arrays import kernel, loops_of_vectors

# What Numba is told to compile for, and the C kernels of the same name; Numba's own choice first.
CPUS = {
    "avx512": {"NUMBA_CPU_NAME": "skylake-avx512", "NUMBA_CPU_FEATURES": ",".join(f"+{f}" for f in (
        "avx", "avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl"))},
    "avx2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"},
}  # fmt: skip
AVAILABLE = gf.cpu_info()["available"]
ISA = next((name for name in CPUS if name in AVAILABLE), None)
needs_vectors = pytest.mark.skipif(piecewise.isa() is None, reason="needs a CPU with AVX2 and FMA")


def all_functions(name):
    """Every function of x, its backward and its inputs' layout, against the C kernels of one instruction set."""
    bits = (np.arange(1 << 19, dtype=np.uint64) * 8209 + 1234).astype(np.uint32).view(np.float32)
    with instruction_set(name), np.errstate(all="ignore"):
        for x in (bits, sample(1 << 18), *(sample(n, seed=n) for n in (*range(70), 127, 128, 129))):
            for function, form in UNARY:
                same_bits(function(x, form, backend="numba"), function(x, form))
            for form in FORMS:
                same_bits(gf.gelu_backward(x[::-1], x, form, backend="numba"), gf.gelu_backward(x[::-1], x, form))


@needs_vectors
def test_the_bits_of_the_c_kernels():
    assert piecewise.isa() is {"avx512": vectors.AVX512, "avx2": vectors.AVX2}[ISA]
    all_functions(ISA)


@pytest.mark.parametrize("name", [name for name in CPUS if name in AVAILABLE])
def test_the_bits_of_the_c_kernels_of_another_cpu(name):
    path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    code = f"import test_jit_vectors as t; t.all_functions({name!r}); print(t.piecewise.isa().layout)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd="/", capture_output=True, text=True,
                          env={**os.environ, **CPUS[name], "PYTHONPATH": path})  # fmt: skip
    assert done.stdout.strip() == {"avx512": "f32x32", "avx2": "f32"}[name], done.stderr


def test_a_cpu_without_vectors_has_the_scalars():
    code = """
import numpy as np, gelu_fast as gf
from gelu_fast import jit
from gelu_fast.jit import piecewise
x = np.linspace(-9, 9, 100, dtype="f4")
print(piecewise.isa(), all(gf.gelu(x, backend="numba") == [jit.gelu(v) for v in x]),
      np.array_equal(gf.gelu(x, backend="numba"), jit.gelu(x)))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd="/", capture_output=True, text=True,
                          env={**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""})  # fmt: skip
    assert done.stdout.split() == ["None", "True", "True"], done.stderr


def test_how_an_instruction_set_is_chosen():
    every = CPUS["avx512"]["NUMBA_CPU_FEATURES"]
    assert vectors.chosen(every) is vectors.AVX512
    assert vectors.chosen(every.replace("+avx512vl", "-avx512vl")) is vectors.AVX2
    assert vectors.chosen("+sse4.2,+avx2,-fma") is None
    assert vectors.chosen("") is None


@needs_vectors
@pytest.mark.skipif("GELU_FAST_EXHAUSTIVE" not in os.environ, reason="minutes; set GELU_FAST_EXHAUSTIVE=1 to run it")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number(name):
    """Whose errors are known: accuracy-results holds those of the C kernels over all of them."""
    ours, theirs, step = kernel(name, "float32", False), FUNCTIONS[name].ufunc, 1 << 20
    got, want = np.empty((2, step), np.float32)
    with instruction_set(ISA), np.errstate(all="ignore"), gf.num_threads(1):
        for first in range(0, 1 << 32, step):
            x = (np.arange(step, dtype=np.uint32) + np.uint32(first)).view(np.float32)
            ours(x, got)
            theirs(x, want)
            if not np.array_equal(got.view(np.int32), want.view(np.int32)):
                same_bits(got, want)


# -- inside @njit ------------------------------------------------------------------------------------------------------

def test_an_array_in_compiled_code_takes_the_same_loops():
    from gelu_fast import jit

    x = sample(1003)
    for function, front, form in ((jit.gelu, gf.gelu, "none"), (jit.gelu_tanh_grad, gf.gelu_grad, "tanh")):
        compiled = numba.njit(lambda v, f=function: f(v))
        for view in (x, x[::2], x.reshape(17, 59).T, x[:0]):
            same_bits(compiled(view), front(view, form, backend="numba"))


# -- machine code ------------------------------------------------------------------------------------------------------

def machine_code(name):
    compiled = numba.njit(loops_of_vectors(name)[0], error_model="numpy")  # kernel's may be cached, without text
    compiled.compile("void(float32[::1], float32[::1])")
    return compiled.inspect_asm(compiled.signatures[0])


@needs_vectors
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "gelu_quick_grad2"])
def test_machine_code(name):
    """The inner loop: look-ups in registers, nothing spilled, fetched by index or called."""
    asm = machine_code(name)
    register = "zmm" if piecewise.isa() is vectors.AVX512 else "ymm"
    near = inner_loop(asm)
    assert len(re.findall(r"\bvperm(il)?(ps|d)\b", near)) >= 2 * 7
    assert f"%{register}" in near
    assert "gather" not in asm
    assert not re.search(r"\bcall", near)
    if piecewise.isa() is vectors.AVX512:
        assert not re.search(r"\(%rsp\)|\(%rbp\)", near)


def inner_loop(asm):
    """The instructions of the shortest loop that looks coefficients up."""
    lines = asm.splitlines()
    labels = {line.split(":")[0]: at for at, line in enumerate(lines) if re.match(r"\.?\w+:", line)}
    loops = []
    for at, line in enumerate(lines):
        jump = re.match(r"\s+j\w+\s+(\.?\w+)", line)
        if jump and labels.get(jump[1], at) < at:
            body = "\n".join(lines[labels[jump[1]] : at + 1])
            if "vperm" in body:
                loops.append(body)
    assert loops, "no loop with look-ups"
    return min(loops, key=len)
