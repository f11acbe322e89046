"""Builds the one extension module: ufuncs.pyx over dispatch.c and one translation unit per ISA.

Every isa_*.c compiles everywhere with the same flags: it turns its own instructions on by a target pragma, and to
nothing on another architecture or compiler. Metadata stands in pyproject.toml.
"""

import platform
import sys

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

CPU = "gelu_fast/cpu/"
HEADERS = [CPU + name for name in (
    "coefficients.h", "common.h", "dispatch.h", "fused_loops.h", "gelu_math.h", "kernels.h", "loops.h", "pool.h",
    "rows.h", "vec_avx2.h", "vec_avx512.h", "vec_baseline.h", "vec_neon.h",
)]  # fmt: skip
SOURCES = [CPU + name for name in (
    "ufuncs.pyx", "dispatch.c", "pool.c", "rows.c", "isa_baseline.c", "isa_avx2.c", "isa_avx512.c", "isa_neon.c",
)]  # fmt: skip

if sys.platform == "win32":
    compile_args, link_args = ["/O2", "/fp:precise", "/std:c11"], []
else:
    # Contraction off: an fma stands where the source says fma, so a value has the same bits wherever it stands.
    compile_args = ["-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden", "-g0"]
    link_args = []
    if sys.platform == "linux" and platform.machine() == "x86_64":
        # Instruction order only: 3 % for the common case and 12 % for the tail of the AVX2 kernels on Zen 4. (Other
        # -mtune: haswell, znver3 no better than the default; without -fschedule-insns half of it.)
        compile_args += ["-mtune=skylake", "-fschedule-insns", "-fsched-pressure"]
    if sys.platform == "linux":
        compile_args += ["-fopenmp"]
        link_args += ["-fopenmp"]

setup(
    packages=["gelu_fast", "gelu_fast.accuracy", "gelu_fast.bench", "gelu_fast.cpu", "gelu_fast.cuda",
              "gelu_fast.export", "gelu_fast.jit", "gelu_fast.torch"],
    package_dir={"gelu_fast.export": "export"},
    package_data={"gelu_fast": ["py.typed"], "gelu_fast.cpu": ["*.pyi"]},
    ext_modules=cythonize(
        [Extension(
            "gelu_fast.cpu.ufuncs", SOURCES, depends=HEADERS, include_dirs=[CPU, numpy.get_include()],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
            extra_compile_args=compile_args, extra_link_args=link_args,
        )],
        language_level=3,
    ),
)  # fmt: skip
