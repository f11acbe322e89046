"""`sanitizers.py address|undefined`: the extension under gcc's ASan or UBSan, and the kernel tests with it.

Built into build/asan or build/ubsan; the tests run with .venv's packages. Before them a fault is made on purpose, which
the sanitizer has to report: without that a green run would prove nothing.
"""

import os
import subprocess
import sys
from pathlib import Path

import steps

TESTS = ("tests/test_sanitizers.py", "tests/test_api.py", "tests/test_fused.py", "tests/test_streams.py",
         "tests/test_threads.py", "tests/test_property.py")  # fmt: skip
COMMON = "-g -O1 -fno-omit-frame-pointer"
FAULTS = {
    "address": (
        "heap-buffer-overflow",
        "import numpy as np; from gelu_fast.cpu import ufuncs as u; u.run_rows(u.UNARY, 0, (np.ones(5000, 'f4'),), "
        "(np.ones(4999, 'f4'),))",
    ),
    "undefined": (
        "misaligned address",
        "import numpy as np; from gelu_fast.cpu import ufuncs as u; x = np.ones(80004, 'u1')[1:80001].view('f8')[::2]; "
        "u.run_rows(u.UNARY, 0, (x,), (np.ones(5000),))",
    ),
}


def runtime(name: str) -> str:
    """The compiler's own copy of a shared library."""
    return subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()


def build(kind: str, where: Path) -> Path:
    tree, lib = steps.copy_tree(where / "source"), where / "lib"
    recover = "" if kind == "address" else " -fno-sanitize-recover=all"
    steps.run(
        steps.VENV_PYTHON, "setup.py", "-q", "build", "--build-lib", lib, "--build-temp", where / "objects",
        cwd=tree, GELU_FAST_CFLAGS=f"{COMMON} -fsanitize={kind}{recover}", GELU_FAST_OPENMP="1",
    )  # fmt: skip
    return lib


def settings(kind: str, where: Path, lib: Path) -> dict[str, str]:
    # Reports go to files: pytest's capture would swallow them. PYTHONMALLOC: every small object from malloc, too.
    report = f"log_path={where}/report:halt_on_error=1"
    env = {"PYTHONPATH": str(lib)}
    if kind == "address":
        # libstdc++, or ASan finds no __cxa_throw to intercept when a C++ extension comes later.
        env |= {"LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libstdc++.so')}", "PYTHONMALLOC": "malloc",
                "ASAN_OPTIONS": f"detect_leaks=0:{report}"}  # fmt: skip
    else:
        env["UBSAN_OPTIONS"] = f"print_stacktrace=1:{report}"
    return env


def reports(where: Path) -> str:
    found = sorted(where.glob("report*"))
    text = "\n".join(p.read_text(errors="replace") for p in found)
    for path in found:
        path.unlink()
    return text


def main() -> None:
    if sys.argv[1:] not in (["address"], ["undefined"]):
        steps.fail("usage: sanitizers.py address|undefined", 2)
    kind = sys.argv[1]
    steps.need(["gcc"], "gcc")
    if not Path(runtime("libasan.so")).exists():
        steps.fail("gcc has no libasan; apt-get install libgcc-12-dev (of gcc's version)", 2)
    where = steps.folder({"address": "asan", "undefined": "ubsan"}[kind])
    steps.say(f"building with -fsanitize={kind}")
    lib = build(kind, where)
    env = settings(kind, where, lib)
    steps.installed(steps.VENV_PYTHON, lib, **env)

    wanted, code = FAULTS[kind]
    steps.say(f"a fault on purpose: {wanted}")
    done = subprocess.run([steps.VENV_PYTHON, "-c", code], cwd="/", env={**os.environ, **env}, capture_output=True)
    text = reports(where)
    if done.returncode == 0 or wanted not in text:
        steps.fail(f"the sanitizer did not report it (exit code {done.returncode}): {text or done.stderr.decode()}")

    steps.say("the kernel tests")
    tests = [t for t in TESTS if (steps.ROOT / t).exists()]
    try:
        steps.run_tests(steps.VENV_PYTHON, where / "source", *tests, "-k", steps.TIMED_OR_TORCH, **env)
    finally:
        text = reports(where)
        print(text, end="")
    if text:
        steps.fail("reports of the sanitizer, above")
    steps.say(f"-fsanitize={kind}: nothing found")


if __name__ == "__main__":
    main()
