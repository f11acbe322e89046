"""What the packaging scripts share: commands that are shown, a copy of the source tree, empty environments.

The scripts need Python 3.11 and no package. They work in build/NAME, which git ignores, on a copy of the tree, so that
neither the checkout nor its .venv changes. Each exits with 0, 1 (something failed) or 2 (this machine lacks something).
"""

import os
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV_PYTHON = ROOT / ".venv/bin/python"  # `make setup`'s, with all that the tests import
TREE = ("gelu_fast", "export", "tests", "benchmarks", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md",
        "CHANGELOG.md", "LICENSE", "Makefile", "constraints.txt")  # fmt: skip
# The kernels through the front door and as ufuncs, on every instruction set; NumPy, ml_dtypes, mpmath and SciPy alone.
KERNEL_TESTS = ("tests/test_api.py", "tests/test_fused.py", "tests/test_streams.py", "tests/test_accuracy.py")
KERNEL_NEEDS = ("pytest", "pytest-timeout", "hypothesis", "ml_dtypes", "mpmath", "scipy", "threadpoolctl")
# In test_threads.py, what no such environment is for: an import under 80 ms, and tests of torch, which isn't there.
TIMED_OR_TORCH = "not torch and not import_time and not floating_point_state"
PYTEST_TIMEOUT = "--timeout=900"


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def fail(text: str, code: int = 1) -> None:
    print(f"FAILED: {text}", file=sys.stderr, flush=True)
    raise SystemExit(code)


def need(commands: Iterable[str], packages: str) -> None:
    """Ends the script where a command is missing, with the line that installs it."""
    missing = [c for c in commands if shutil.which(c) is None]
    if missing:
        fail(f"no {', '.join(missing)} here; apt-get install {packages}", 2)


def run(*command: str | Path, cwd: Path | None = None, quiet: bool = True, **env: str) -> str:
    """Runs it, and ends the script with its output where it fails; its output. quiet: not shown as it comes."""
    words = [str(c) for c in command]
    print("$", *(f"{k}={shlex.quote(v)}" for k, v in env.items()), shlex.join(words), flush=True)
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **env}, text=True,
        stdout=subprocess.PIPE if quiet else None, stderr=subprocess.STDOUT if quiet else None,
    )  # fmt: skip
    if done.returncode:
        fail(f"{shlex.join(words)}: exit code {done.returncode}\n{(done.stdout or '')[-6000:]}")
    return done.stdout or ""


def folder(name: str, *, fresh: bool = True) -> Path:
    """build/NAME, empty unless `fresh` is False."""
    path = ROOT / "build" / name
    if fresh:
        shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True, exist_ok=True)
    return path


def copy_tree(target: Path) -> Path:
    """The sources as they are now, with nothing that was built."""
    leave = shutil.ignore_patterns("*.so", "__pycache__", "ufuncs.c")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=leave)
        else:
            shutil.copy2(ROOT / name, target / name)
    return target


def environment(path: Path, python: str | Path | None = None) -> Path:
    """A new virtual environment; its interpreter. python: by which, or this one."""
    shutil.rmtree(path, ignore_errors=True)
    if python is None:
        venv.create(path, with_pip=True)
    else:
        run(python, "-m", "venv", path)
    return path / "bin/python"


def pip(python: Path, *words: str | Path, **env: str) -> str:
    return run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words, **env)


def installed(python: Path, inside: Path, **env: str) -> str:
    """Checks that `import gelu_fast` finds the extension inside that folder; what cpu_info says."""
    code = (
        "import gelu_fast as gf, gelu_fast.cpu.ufuncs as u, platform; print(u.__file__); "
        "print('CPython', platform.python_version(), gf.cpu_info(), 'OpenMP' if u.has_openmp() else 'no OpenMP')"
    )
    where, told = run(python, "-c", code, cwd=Path("/"), **env).splitlines()[-2:]
    if not Path(where).is_relative_to(inside):
        fail(f"gelu_fast: expected inside {inside}, came from {where}")
    print(told, flush=True)
    return told


def run_tests(python: Path, tree: Path, *words: str, under: tuple[str, ...] = (), **env: str) -> None:
    """pytest in a copy of the tree. Its own gelu_fast would hide the installed one, so it goes. under: an emulator."""
    shutil.rmtree(tree / "gelu_fast", ignore_errors=True)
    pytest = (*under, python, "-P", "-m", "pytest", "-p", "no:cacheprovider", PYTEST_TIMEOUT)
    run(*pytest, *words, cwd=tree, quiet=False, **env)
