"""CUDA kernels kept on disk: another process finds them, damage is a miss. Without a GPU: compiled for sm_90 here."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda: pip install 'gelu-fast[cuda]'")

CODE = """
import hashlib, sys
from pathlib import Path
from numba import cuda
from numba.cuda import compiler, types
from numba.cuda.descriptor import cuda_target
from numba.cuda.dispatcher import _Kernel
from gelu_fast.cuda import caching, kernels

CAPABILITY, SIGNATURE = (9, 0, "a"), (types.int64,) * 10

class Codegen:  # numba-cuda's own asks the driver for the device
    def magic_tuple(self):
        return (13, 0), CAPABILITY

class Cache(caching.KernelCache):
    def _index_key(self, sig, codegen):
        return super()._index_key(sig, Codegen())

def compiled(source):
    made = compiler.compile_cuda(source, types.void, SIGNATURE, cc=CAPABILITY[:2], nvvm_options={"opt": 3})
    library, name = made.library, made.fndesc.llvm_func_name
    library._entry_name = name
    compiler.kernel_fixup(library.get_function(name), False)
    library.get_cubin(cc=CAPABILITY)
    kernel = _Kernel._rebuild(False, name, made.signature, library, False, False, made.call_helper, [])
    kernel.target_context = made.target_context
    return kernel

source = kernels.python_kernel("gelu_quick", "float32", True)
dispatcher = caching.keep(cuda.jit(source))
assert isinstance(dispatcher._cache, caching.KernelCache)
cache = Cache(source)
folder = Path(cache.cache_path)
kernel = cache.load_overload(SIGNATURE, cuda_target.target_context)
print("missed" if kernel is None else "found")
if kernel is None:
    kernel = compiled(source)
    if "in the way" in sys.argv:
        for path in folder.glob("*"):
            path.unlink()
        folder.rmdir()
        folder.write_text("")
    cache.save_overload(SIGNATURE, kernel)
    assert cache._enabled == ("in the way" not in sys.argv)
print(hashlib.sha256(kernel._codelibrary.get_asm_str(cc=CAPABILITY).encode()).hexdigest())
assert kernel._codelibrary._cubin_cache.keys() == {CAPABILITY}
"""


def run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


def test_another_process_finds_it_and_damage_is_a_miss(tmp_path):
    made, digest = run(tmp_path)
    assert made == "missed"
    assert run(tmp_path) == ["found", digest]
    for damage in ("*.nbc", "*.nbi"):
        (path,) = tmp_path.rglob(damage)
        path.write_bytes(path.read_bytes()[:-100] if damage == "*.nbc" else b"")
        assert run(tmp_path) == ["missed", digest]
        assert run(tmp_path) == ["found", digest]


def test_a_cache_that_cannot_be_written(tmp_path):
    assert run(tmp_path, "in the way")[0] == "missed"


def test_the_key_is_of_everything_a_kernel_is_made_from(tmp_path):
    from gelu_fast import kernel_files

    for name, text in (("a.py", "x = 1"), ("b.py", "y = 1")):
        (tmp_path / name).write_text(text)
    files = sorted(tmp_path.glob("*.py"))
    first = kernel_files.fingerprint(files, "0.30")
    assert first == kernel_files.fingerprint(files, "0.30")
    assert first != kernel_files.fingerprint(files, "0.31")
    files[0].write_text("x = 2")
    assert first != kernel_files.fingerprint(files, "0.30")
