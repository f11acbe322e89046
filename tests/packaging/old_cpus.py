"""The kernels on CPUs that this machine is not: Nehalem (no AVX) and Haswell (AVX2, no AVX-512), emulated.

The instruction set is chosen by itself; one that the CPU lacks would end the interpreter with SIGILL.
"""

import signal
import subprocess
import sys
from pathlib import Path

import steps

CPUS = {"Nehalem": "baseline", "Haswell": "avx2"}
# Emulated arithmetic is slow: every kernel at many lengths, on every instruction set that the CPU has, and the front
# door. No test that starts another process, which would run on the real CPU.
TESTS = ("tests/test_sanitizers.py", "tests/test_api.py")
PROBE = """
#include <immintrin.h>
volatile int seen[8]; /* or the compiler does the sum itself, without one such instruction */
int main(int count, char **unused) {
    __m256i v = _mm256_set1_epi32(count);
    (void)unused;
    _mm256_storeu_si256((__m256i *)seen, v);
    v = _mm256_loadu_si256((const __m256i *)seen);
    _mm256_storeu_si256((__m256i *)seen, _mm256_add_epi32(v, v));
    return seen[3] != 2 * count;
}
"""


def emulator_refuses(where: Path, cpu: str, flag: str) -> bool:
    """Whether a program of those instructions dies of SIGILL there."""
    source, program = where / "probe.c", where / f"probe{flag}"
    source.write_text(PROBE)
    steps.run("gcc", "-O1", flag, "-o", program, source)
    code = subprocess.run(["qemu-x86_64", "-cpu", cpu, program], capture_output=True).returncode
    if code not in (0, -signal.SIGILL, 128 + signal.SIGILL):
        steps.fail(f"{program} under {cpu}: exit code {code}")
    return code != 0


def main() -> None:
    wanted = sys.argv[1:] or list(CPUS)
    if unknown := set(wanted) - set(CPUS):
        steps.fail(f"expected some of {', '.join(CPUS)}, got {', '.join(sorted(unknown))}", 2)
    steps.need(["gcc", "qemu-x86_64"], "gcc qemu-user")
    where = steps.folder("old-cpus")
    if not emulator_refuses(where, "Nehalem", "-mavx2") or emulator_refuses(where, "Haswell", "-mavx2"):
        steps.fail("the emulator doesn't keep to the CPU's instructions: AVX2 expected on Haswell and not on Nehalem")
    for cpu in wanted:
        tree = steps.copy_tree(where / "source")
        emulator = ("qemu-x86_64", "-cpu", cpu)
        code = "import gelu_fast as gf; print(gf.cpu_info()['isa'], gf.cpu_info()['available'])"
        told = steps.run(*emulator, steps.VENV_PYTHON, "-c", code, cwd=Path("/")).splitlines()[-1]
        print(f"{cpu}: {told}", flush=True)
        if told.split()[0] != CPUS[cpu]:
            steps.fail(f"{cpu}: expected {CPUS[cpu]} to be chosen")
        steps.run_tests(steps.VENV_PYTHON, tree, *TESTS, under=emulator)
    steps.say(f"passed: {', '.join(wanted)}")


if __name__ == "__main__":
    main()
