"""Compiled kernels on disk: found again, damaged, filled by many at once, nowhere to write (case 15)."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gelu_fast
from gelu_fast import coefficients
from gelu_fast.jit import piecewise

CODE = """
import sys, time, warnings
begin = time.monotonic()
import numpy as np, gelu_fast as gf
imported = time.monotonic() - begin
x = np.linspace(-9, 9, 1001, dtype="f4")
y = gf.gelu(x, backend="numba")
assert np.allclose(y, gf.gelu(x), atol=1e-6)
from gelu_fast.jit.arrays import kernel
stats = kernel("gelu", "float32", False).stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()), imported < 0.5)
"""


def start(code=CODE, **env):
    return subprocess.Popen([sys.executable, "-W", "error", "-c", code], env={**os.environ, **env}, cwd="/",
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.split()


def run(**env):
    return finish(start(**env))


def files(directory, suffix):
    return sorted(Path(directory).rglob(f"*{suffix}"))


def test_the_second_process_compiles_nothing(tmp_path):
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[:2] == ["0", "1"]
    assert len(files(tmp_path, ".nbi")) == len(files(tmp_path, ".nbc")) == 1
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[:2] == ["1", "0"]


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", ["empty", "half", "flipped"])
def test_damaged_file(tmp_path, suffix, damage):
    run(NUMBA_CACHE_DIR=str(tmp_path))
    file, = files(tmp_path, suffix)
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 0xFF
    else:
        del content[0 if damage == "empty" else len(content) // 2 :]
    file.write_bytes(content)
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[:2] == ["0", "1"]
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[:2] == ["1", "0"]  # repaired


def test_a_changed_number_in_the_machine_code(tmp_path):
    """Nothing but the digest can tell: the file is sound otherwise, and the kernel made from it gives other results."""
    run(NUMBA_CACHE_DIR=str(tmp_path))
    file, = files(tmp_path, ".nbc")
    content = file.read_bytes()
    # A coefficient as the code holds it: a column of the look-ups, or one of the branch-free formula's.
    isa = piecewise.isa()
    if isa is None:
        number = float.fromhex(coefficients.JIT["f32"]["rise"]["coefs"][0])
    else:
        number = float.fromhex(getattr(coefficients, f"{isa.layout.upper()}_TABLES")["none", 0]["rows"][1][3])
    sought, other = (np.float32(v).tobytes() for v in (number, 2 * number))
    assert sought in content
    file.write_bytes(content.replace(sought, other))
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[:2] == ["0", "1"]
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[:2] == ["1", "0"]


def test_eight_processes_fill_an_empty_cache(tmp_path):
    processes = [start(NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(8)]
    for process in processes:
        finish(process)
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[:2] == ["1", "0"]
    assert not files(tmp_path, ".tmp.*")


def test_other_formulas_are_another_cache(tmp_path):
    run(NUMBA_CACHE_DIR=str(tmp_path))
    code = "from gelu_fast.jit import caching; caching.fingerprint = lambda: 'another'\n" + CODE
    assert finish(start(code, NUMBA_CACHE_DIR=str(tmp_path)))[:2] == ["0", "1"]


def read_only_copy(directory):
    """The package as installed, copied to where nothing can be written."""
    source = Path(gelu_fast.__file__).parent
    for path in source.rglob("*"):
        if path.suffix in (".py", ".so") and "__pycache__" not in path.parts:
            target = directory / "gelu_fast" / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    for path in [*directory.rglob("*"), directory]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))


@pytest.mark.case(15)
def test_nowhere_to_write(tmp_path):
    install = tmp_path / "install"
    install.mkdir()
    read_only_copy(install)
    code = f"import sys; sys.path.insert(0, {str(install)!r})\n" + CODE
    code += f"assert gf.__file__.startswith({str(install)!r})\n"
    if os.geteuid() == 0:  # root may write anywhere: refuse by hand what the file system would
        code = """
import tempfile
def refuse(*args, **kwargs): raise PermissionError(13, "read-only")
tempfile.TemporaryFile = tempfile.NamedTemporaryFile = refuse
""" + code
    code += "print(type(kernel('gelu', 'float32', False)._cache).__name__)\n"
    env = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent/cache", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        assert finish(start(code, NUMBA_CACHE_DIR="", **env)) == ["0", "1", "True", "NullCache"]
        assert not files(install, ".nbi")
    finally:
        for path in [install, *install.rglob("*")]:
            path.chmod(path.stat().st_mode | stat.S_IWUSR)


def test_a_directory_that_stops_being_writable(tmp_path):
    """The cache file's name is taken by a directory: the kernel works, and is not kept."""
    run(NUMBA_CACHE_DIR=str(tmp_path))
    for file in [*files(tmp_path, ".nbi"), *files(tmp_path, ".nbc")]:
        file.unlink()
        file.mkdir()
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[:2] == ["0", "1"]
