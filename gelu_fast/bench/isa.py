"""``--isa``: the same benchmark in a child process in which everybody who can be is kept to one instruction set."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Sequence

# What each library reads, and only when it starts: hence a child process.
LIMITS: dict[str, dict[str, str]] = {
    "avx2": {
        "GELU_FAST_ISA": "avx2",
        "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels, and torch.compile
        "ONEDNN_MAX_CPU_ISA": "AVX2",  # torch's exact float32 GELU, which oneDNN compiles for the best ISA it finds
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+sse4.2,+popcnt",
    },
    "avx512": {
        "GELU_FAST_ISA": "avx512",
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX512",
        "NUMBA_CPU_NAME": "skylake-avx512",
        "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",
    },
}
UNLIMITED = "onnxruntime and the C library's copy can't be limited and use the best instructions of the CPU"


def limited_to(isa: str) -> bool:
    """Whether this process already runs with the limits of `isa`."""
    return all(os.environ.get(name) == value for name, value in LIMITS[isa].items())


def run_limited(isa: str, arguments: Sequence[str]) -> int:
    """Run the command line again in a child process with the limits of `isa`; its exit code."""
    environment = os.environ | LIMITS[isa] | _numpy_limit(isa)
    # -P: in the repository's root ./gelu_fast would shadow the installed package.
    with subprocess.Popen([sys.executable, "-P", "-m", "gelu_fast.bench", *arguments], env=environment) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:  # which the child has too, and says
            return child.wait(timeout=20)
        finally:
            child.kill()  # if it lives still


def _numpy_limit(isa: str) -> dict[str, str]:
    """NumPy's own exp and tanh; the names of what it dispatches to differ between its versions."""
    if isa != "avx2":
        return {}
    dispatched: list[str] = importlib.import_module("numpy._core._multiarray_umath").__cpu_dispatch__
    wide = [name for name in dispatched if name.startswith("AVX512") or name == "X86_V4"]
    return {"NPY_DISABLE_CPU_FEATURES": " ".join(wide)} if wide else {}
