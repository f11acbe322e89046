"""The kernels compiled to PTX, without a GPU: 16-byte accesses, no double precision in float32, no local memory.

Runs where numba-cuda and NVVM are installed: pip install 'gelu-fast[cuda]'.
"""

import re

import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda: pip install 'gelu-fast[cuda]'")

from gelu_fast.cuda import kernels
from gelu_fast.cuda.device import OPERANDS, split

OPERATIONS = ("gelu", "gelu_tanh", "gelu_quick", "gelu_grad", "gelu_tanh_grad2", "gelu_quick_backward", "bias_gelu",
              "gate_gelu_tanh", "bias_gelu_tanh_backward", "gate_gelu_backward")  # fmt: skip
VECTOR = {"float32": r"v4\.[fbu]32", "float64": r"v2\.[fbu]64", "float16": r"v4\.[fbu]32", "bfloat16": r"v4\.[fbu]32"}


def compiled(operation, dtype, capability):
    try:
        return kernels.ptx(operation, dtype, capability)
    except Exception as error:
        if "nvvm" in str(error).lower() and "INVALID_IR" not in str(error):
            pytest.skip(f"needs NVVM, of numba-cuda[cu13]: {error}")
        raise


def check(ptx, operation, dtype, capability):
    inputs, results = OPERANDS[split(operation)[0]]
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert len(re.findall(r"ld\.global\." + VECTOR[dtype], ptx)) == inputs
    assert len(re.findall(r"st\.global\." + VECTOR[dtype], ptx)) == results
    clean(ptx, dtype)


def clean(ptx, dtype):
    assert not re.search(r"\.local|__local_depot|\bcall", ptx)
    # Formulas carry rounding errors along: a product that may be fused with a sum is one without .rn.
    assert not re.search(r"\bmul\.f(32|64)", ptx)
    if dtype != "float64":
        assert ".f64" not in ptx


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_float32(operation, capability):
    check(compiled(operation, "float32", capability), operation, "float32", capability)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("operation", ["gelu", "gelu_backward", "bias_gelu_backward", "gate_gelu_quick_backward"])
def test_other_dtypes(operation, dtype):
    check(compiled(operation, dtype, (9, 0)), operation, dtype, (9, 0))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_sums_of_blocks(dtype):
    clean(compiled("total", dtype, (9, 0)), dtype)
    if dtype in ("float32", "float64"):
        clean(compiled("fold", dtype, (9, 0)), dtype)


@pytest.mark.parametrize(("dtype", "pair"), [("float16", "cvt.rn.f16x2.f32"), ("bfloat16", "cvt.rn.bf16x2.f32")])
def test_two_are_rounded_at_a_time_from_8_0_on(dtype, pair):
    assert compiled("gelu_quick", dtype, (8, 0)).count(pair) == 4
    assert pair not in compiled("gelu_quick", dtype, (7, 5))


def test_products_would_be_fused_without_strict():
    from numba import cuda
    from numba.cuda import types

    from gelu_fast.cuda import primitives as p

    load, store, strict = *(p.make_memory("float32", True)[name] for name in ("load", "store")), p.strict

    def loose(x):
        store(x, load(x) * load(x + 4) + load(x + 8))

    def exact(x):
        store(x, strict(load(x) * load(x + 4) + load(x + 8)))

    for kernel, fused in ((loose, True), (exact, False)):
        ptx, _ = cuda.compile_ptx(kernel, (types.int64,), cc=(9, 0))
        assert ("fma.rn.f32" in ptx) == fused


@pytest.mark.parametrize(("operation", "dtype"), [
    ("gelu", "float32"), ("bias_gelu_backward", "bfloat16"), ("gate_gelu_tanh_backward", "float32"),
])  # fmt: skip
def test_registers_suffice(operation, dtype):
    """As the assembler sees it, which NVIDIA's linker has in it."""
    linker = pytest.importorskip("cuda.bindings.nvjitlink", reason="needs nvJitLink, of numba-cuda[cu13]")
    ptx = compiled(operation, dtype, (9, 0)).encode()
    handle = linker.create(3, ["-arch=sm_90", "-verbose", "-Xptxas=-v"])
    linker.add_data(handle, linker.InputType.PTX, ptx, len(ptx), operation)
    linker.complete(handle)
    said = bytearray(linker.get_info_log_size(handle))
    linker.get_info_log(handle, said)
    linker.destroy(handle)
    assert "0 bytes spill stores, 0 bytes spill loads" in said.decode()
