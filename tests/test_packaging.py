"""What the installed package is allowed to do and where it refuses to be loaded; and the scripts behind make."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gelu_fast
from gelu_fast.cpu import ufuncs as cpu

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(gelu_fast.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# Modules that reach the network, start processes, or run data as code.
FORBIDDEN = {
    "aiohttp", "asyncio", "cloudpickle", "code", "dill", "ftplib", "http", "httpx", "joblib", "marshal",
    "multiprocessing", "pickle", "requests", "shelve", "smtplib", "socket", "socketserver", "ssl", "subprocess",
    "telnetlib", "urllib", "urllib3", "webbrowser", "xmlrpc",
}  # fmt: skip
FORBIDDEN_CALLS = {"eval", "exec", "__import__"}
FORBIDDEN_OF_OS = re.compile(r"system|popen|exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?|fork|forkpty|startfile")
_NUMBA = "Numba keeps compiled kernels as pickles, in the user's own cache folder; read and written as it does"
# (file, what): why it may stay.
ALLOWED = {
    ("accuracy/exhaustive.py", "import multiprocessing"): "`gelu-fast accuracy --exhaustive`: workers of its own",
    ("bench/isa.py", "import subprocess"): "`gelu-fast bench --isa`: itself again, as import chooses the set for good",
    ("cli/npm.py", "import subprocess"): "`gelu-fast export --page`: npm, asked for and said",
    ("generate_coefficients.py", "import multiprocessing"): "a developer's tool, which nothing imports",
    ("kernel_files.py", "import pickle"): _NUMBA,
}


def offences(source):
    """(line, what) of each thing in the source that the library must not do."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and node.level:
                continue
            yield from ((node.lineno, f"import {n}") for n in names if n.split(".")[0] in FORBIDDEN)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in FORBIDDEN_CALLS or name.endswith((".import_module", "import_module", "require")):
                first = node.args[0] if node.args else None
                known = isinstance(first, ast.Constant) and str(first.value).split(".")[0] not in FORBIDDEN
                if name in FORBIDDEN_CALLS or (isinstance(first, ast.Constant) and not known):
                    yield node.lineno, f"{name}({'' if first is None else ast.unparse(first)})"
            if re.fullmatch(r"os\.(" + FORBIDDEN_OF_OS.pattern + ")", name):
                yield node.lineno, name
            if name.endswith("load_module") or name in ("np.load", "numpy.load"):
                pickles = [k for k in node.keywords if k.arg == "allow_pickle"]
                if not pickles or ast.unparse(pickles[0].value) != "False":
                    yield node.lineno, f"{name} without allow_pickle=False"
            yield from (
                (node.lineno, f"{k.arg}={ast.unparse(k.value)}")
                for k in node.keywords
                if (k.arg == "allow_pickle" and ast.unparse(k.value) != "False")
                or (k.arg == "weights_only" and ast.unparse(k.value) != "True")
                or (k.arg == "shell" and ast.unparse(k.value) != "False")
            )


def test_the_library_reaches_no_network_no_process_and_runs_no_data():
    found = {
        (str(path.relative_to(PACKAGE)), what): line
        for path in FILES
        for line, what in offences(path.read_text())
    }
    assert len(FILES) > 50
    assert not set(found) - set(ALLOWED), found


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess", "from urllib.request import urlopen", "import os; os.system('x')", "import os, socket",
        "eval('1')", "exec(code)", "__import__('socket')", "import importlib; importlib.import_module('socket')",
        "from pickle import loads", "np.load(f)", "np.load(f, allow_pickle=True)", "np.load(f, allow_pickle=x)",
        "torch.load(f, weights_only=False)", "def f():\n    import ssl", "np.savez(f, allow_pickle=True)",
    ],
)  # fmt: skip
def test_the_scan_finds(source):
    assert list(offences(source))


@pytest.mark.parametrize(
    "source",
    ["np.load(f, allow_pickle=False)", "from . import code", "model.eval()", "import_module('numba')", "re.compile(x)"],
)
def test_the_scan_lets_through(source):
    assert not list(offences(source))


# Before 3.13, whether a subinterpreter has its own GIL and refuses what doesn't know of it could not be chosen so.
SUBINTERPRETERS = """
import sys
code = '''
try:
    import gelu_fast
except ImportError as error:
    print(error)
else:
    print("imported")
'''
if sys.version_info >= (3, 13):
    import _interpreters
    for config in ("isolated", "legacy"):
        failed = _interpreters.exec(_interpreters.create(config), code)
        assert failed is None, failed
else:
    import _xxsubinterpreters
    for isolated in (True, False):
        _xxsubinterpreters.run_string(_xxsubinterpreters.create(isolated=isolated), code)
"""


@pytest.mark.parametrize("before", ["", "import numpy", "import gelu_fast"], ids=["first", "after numpy", "after us"])
def test_a_subinterpreter_is_refused(before):
    done = subprocess.run([sys.executable, "-c", before + SUBINTERPRETERS + "\nimport gelu_fast; gelu_fast.gelu(1.0)"],
                          cwd="/", capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("gelu_fast: expected the main interpreter, got a subinterpreter" in line for line in lines), lines


def test_free_threading_is_declared():
    """And by reasoning: the text in ufuncs.pyx."""
    source = ROOT / "gelu_fast/cpu/ufuncs.pyx"
    if not source.exists():
        pytest.skip("needs the source tree: run from a checkout or an unpacked sdist")
    assert source.read_text().startswith("# cython: freethreading_compatible=True\n")
    assert "safe without the GIL" in cpu.__doc__


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A copy of the sources, so that no generated file comes into the checkout."""
    if not (ROOT / "setup.py").exists() or not (ROOT / "gelu_fast").exists():
        pytest.skip("needs the source tree: run from a checkout or an unpacked sdist")
    pytest.importorskip("Cython", reason="needs Cython: `make setup` installs it")
    tree = tmp_path_factory.mktemp("sources")
    for name in ("gelu_fast", "export"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, tree / name)
    # Knows neither OpenMP nor anything else: each build ends after the message.
    (tree / "cc").write_text("#!/bin/sh\nexit 1\n")
    (tree / "cc").chmod(0o755)
    return tree


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("", "building without OpenMP, which the compiler can't use"),
        ("0", "building without OpenMP, as GELU_FAST_OPENMP=0 says"),
        ("1", "GELU_FAST_OPENMP=1, but the compiler can't use OpenMP"),
        ("yes", "GELU_FAST_OPENMP: expected 0, 1 or nothing, got 'yes'"),
    ],
)
def test_setup_says_whether_it_does_without_openmp(sources, wish, said):
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-lib", "lib", "--build-temp", "tmp"],
        cwd=sources, env={**os.environ, "GELU_FAST_OPENMP": wish, "CC": f"{sources}/cc"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode != 0
    assert said in done.stderr


def test_export_is_found_from_the_root_of_a_checkout():
    """Where Python finds the source tree before the installed package."""
    if not (ROOT / "gelu_fast/__init__.py").exists() or not list((ROOT / "gelu_fast/cpu").glob("ufuncs.*.so")):
        pytest.skip("needs a checkout with the extension built in place, as `make setup` leaves it")
    code = "import gelu_fast as gf, gelu_fast.export.graph; print(gf.__file__, gf.export.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(ROOT / "gelu_fast/__init__.py"), str(ROOT / "export/__init__.py")]
