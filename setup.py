"""Builds the one extension module: ufuncs.pyx over dispatch.c and one translation unit per ISA.

Every isa_*.c compiles everywhere with the same flags: it turns its own instructions on by a target pragma, and to
nothing on another architecture or compiler. Metadata stands in pyproject.toml. Environment variables:

GELU_FAST_OPENMP  0: without OpenMP; 1: with it or not at all; unset: with it where the compiler can. Without it our
                  own threads remain (cpu/pool.c), but omp_set_num_threads and threadpoolctl no longer limit them.
GELU_FAST_CFLAGS  more flags for compiling and linking, after all others: sanitizers, for instance.
"""

import hashlib
import os
import platform
import shlex
import sys
import tempfile
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

CPU = "gelu_fast/cpu/"
# The arithmetic: a result of `gelu-fast accuracy --exhaustive` is evidence for as long as these don't change.
KERNELS = [CPU + name for name in (
    "coefficients.h", "common.h", "fused_loops.h", "gelu_math.h", "isa_avx2.c", "isa_avx512.c", "isa_baseline.c",
    "isa_neon.c", "kernels.h", "loops.h", "vec_avx2.h", "vec_avx512.h", "vec_baseline.h", "vec_neon.h",
)]  # fmt: skip
HEADERS = [CPU + name for name in ("dispatch.h", "pool.h", "rows.h")]
HEADERS += [name for name in KERNELS if name.endswith(".h")]
SOURCES = [CPU + name for name in ("ufuncs.pyx", "dispatch.c", "pool.c", "rows.c")]
SOURCES += [name for name in KERNELS if name.endswith(".c")]
DIGEST = hashlib.sha256(b"".join(Path(name).read_bytes() for name in KERNELS)).hexdigest()

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
extra = shlex.split(os.environ.get("GELU_FAST_CFLAGS", ""))


class BuildExt(build_ext):
    """Adds OpenMP where the compiler has it."""

    def build_extensions(self) -> None:
        flags = ["-fopenmp"] if self.with_openmp() else []
        for extension in self.extensions:
            extension.extra_compile_args += flags + extra
            extension.extra_link_args += flags + extra
        super().build_extensions()

    def with_openmp(self) -> bool:
        wish = os.environ.get("GELU_FAST_OPENMP", "")
        if wish not in ("", "0", "1"):
            raise SystemExit(f"GELU_FAST_OPENMP: expected 0, 1 or nothing, got {wish!r}")
        if wish == "0":
            print("gelu_fast: building without OpenMP, as GELU_FAST_OPENMP=0 says", file=sys.stderr)
            return False
        if sys.platform != "linux":
            return False  # where the pool has no threads either
        try:
            self.try_openmp()
        except (CompileError, LinkError) as error:
            if wish == "1":
                raise SystemExit(f"GELU_FAST_OPENMP=1, but the compiler can't use OpenMP: {error}") from None
            print(f"gelu_fast: building without OpenMP, which the compiler can't use: {error}", file=sys.stderr)
            return False
        return True

    def try_openmp(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "openmp.c")
            source.write_text("#include <omp.h>\nint main(void) { return omp_get_max_threads() < 1; }\n")
            objects = self.compiler.compile([str(source)], output_dir=folder, extra_preargs=["-fopenmp"])
            self.compiler.link_executable(objects, "openmp", output_dir=folder, extra_postargs=["-fopenmp"])


setup(
    packages=["gelu_fast", "gelu_fast.accuracy", "gelu_fast.bench", "gelu_fast.cli", "gelu_fast.compare",
              "gelu_fast.cpu", "gelu_fast.cuda", "gelu_fast.export", "gelu_fast.jit", "gelu_fast.torch"],
    package_dir={"gelu_fast.export": "export"},
    include_package_data=False,  # or all that MANIFEST.in names, the C sources too, would be in the wheel
    package_data={
        "gelu_fast": ["py.typed"], "gelu_fast.cpu": ["*.pyi"], "gelu_fast.export": ["page_files/*"],
    },
    ext_modules=cythonize(
        [Extension(
            "gelu_fast.cpu.ufuncs", SOURCES, depends=HEADERS, include_dirs=[CPU, numpy.get_include()],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), ("GF_KERNELS_SHA256", DIGEST)],
            extra_compile_args=compile_args, extra_link_args=link_args,
        )],
        language_level=3,
    ),
    cmdclass={"build_ext": BuildExt},
)  # fmt: skip
