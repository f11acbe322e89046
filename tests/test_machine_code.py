"""What the compiler made of the kernels, read from the installed module; runs on a CPU without AVX-512 too."""

import re
import shutil
import subprocess

import pytest
from conftest import ISAS

from gelu_fast.cpu import ufuncs as cpu

pytestmark = pytest.mark.skipif(
    shutil.which("objdump") is None or "avx2" not in ISAS, reason="needs binutils' objdump and an x86-64 build"
)
FUSED = r"(none|tanh|quick)_(sum|sum_backward|gate|gate_backward)_(f16|bf16|f32|f64)"
KERNEL = rf"(none|tanh|quick)\d_(loop|product|part|product_part)_(f16|bf16|f32|f64)|{FUSED}"
STREAM = r"(none|tanh|quick)\d_(stream|product_stream)_(f32|f64)"
WIDTHS = {"zmm": "AVX-512", "ymm": "AVX2", "": "plain C"}


@pytest.fixture(scope="module")
def functions():
    """{name: {widest register: instructions}}; an instruction is (address, text)."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", cpu.__file__], capture_output=True, text=True,
                          check=True).stdout  # fmt: skip
    found = {}
    for block in re.split(r"\n(?=[0-9a-f]+ <)", text):
        head = re.match(r"[0-9a-f]+ <([^>]+)>:", block)
        if head:
            widest = "zmm" if "%zmm" in block else "ymm" if "%ymm" in block else "vex" if "\tv" in block else ""
            code = [(int(a, 16), t) for a, t in re.findall(r"^ *([0-9a-f]+):\t(.*)$", block, re.MULTILINE)]
            found.setdefault(head[1].split(".")[0], {})[widest] = code
    assert len(found) > 50
    return found


@pytest.mark.case(11)
def test_wide_registers_only_in_dispatched_functions(functions):
    """A CPU without AVX must get through everything but the kernels it never selects (case 11)."""
    for name, versions in functions.items():
        if not re.fullmatch(rf"{KERNEL}|{STREAM}|gf_(load|store)_b?f16.*", name):
            assert set(versions) == {""}, f"{name}: {set(versions)}"


def test_every_kernel_has_every_version(functions):
    kernels = [name for name in functions if re.fullmatch(KERNEL, name)]
    streams = [name for name in functions if re.fullmatch(STREAM, name)]
    assert len(kernels) >= 48
    assert len(streams) == 2 * (9 + 3)
    for name in kernels:
        assert set(functions[name]) == set(WIDTHS), name
    for name in streams:
        assert set(functions[name]) == {"zmm", "ymm"}, name


def loops(code):
    """The instructions between a backward jump and where it goes."""
    for address, text in code:
        jump = re.match(r"j\w+ +([0-9a-f]+)", text)
        if jump and int(jump[1], 16) <= address:
            yield [t for a, t in code if int(jump[1], 16) <= a <= address]


@pytest.mark.parametrize("register", ["zmm", "ymm"])
def test_fused_operations_of_full_width_in_the_loop(functions, register):
    for name, versions in functions.items():
        if (re.fullmatch(KERNEL, name) and "part" not in name) or re.fullmatch(STREAM, name):
            most = max(sum("vfmadd" in t and f"%{register}" in t for t in body) for body in loops(versions[register]))
            assert most >= 10, f"{name}: {most} in the loop"


def test_stores_past_the_caches(functions):
    for name, versions in functions.items():
        for code in versions.values():
            assert any("vmovnt" in t for _, t in code) == bool(re.fullmatch(STREAM, name)), name
