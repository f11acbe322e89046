"""CPython without the GIL: built from Debian trixie's source, and the kernel tests run with it, the GIL off.

Neither PyPI nor Debian has such an interpreter. The source comes by apt, into folders of its own; the machine's apt
stays as it is. All of it lies in build/freethreaded, and a second run uses the interpreter that the first built.
"""

import os
from pathlib import Path

import steps

VERSION = "3.13"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCES = f"deb-src [signed-by={KEYS}] http://deb.debian.org/debian trixie main\n"
APT_PACKAGES = "build-essential dpkg-dev libssl-dev zlib1g-dev libffi-dev libbz2-dev liblzma-dev libsqlite3-dev"
TESTS = (*steps.KERNEL_TESTS, "tests/test_threads.py", "tests/test_sanitizers.py", "tests/test_packaging_races.py")


def fetch(where: Path) -> Path:
    """The unpacked source. Debian's patches don't matter here: the upstream tarball of its source package."""
    unpacked = sorted(where.glob("Python-*/configure"))
    if not unpacked:
        apt = where / "apt"
        for part in ("lists/partial", "cache/archives/partial"):
            (apt / part).mkdir(parents=True, exist_ok=True)
        (apt / "sources.list").write_text(SOURCES)
        options = [
            f"-oDir::Etc::sourcelist={apt}/sources.list", "-oDir::Etc::sourceparts=/dev/null",
            f"-oDir::State::lists={apt}/lists", f"-oDir::Cache={apt}/cache", "-oAPT::Sandbox::User=root",
        ]  # fmt: skip
        steps.run("apt-get", *options, "update")
        steps.run("apt-get", *options, "source", "--download-only", f"python{VERSION}", cwd=where)
        (tarball,) = where.glob(f"python{VERSION}_*.orig.tar.xz")
        steps.run("tar", "-xf", tarball, cwd=where)
        unpacked = sorted(where.glob("Python-*/configure"))
    return unpacked[-1].parent


def build(where: Path) -> Path:
    complete = where / "python/complete"  # an installation broken off leaves an interpreter, too
    if not complete.exists():
        source = fetch(where)
        steps.say(f"building {source.name} --disable-gil")
        prefix = f"--prefix={where}/python"
        steps.run("./configure", "-q", "--disable-gil", prefix, "--disable-test-modules", cwd=source)
        steps.run("make", "-s", f"-j{os.cpu_count()}", cwd=source)
        steps.run("make", "-s", "install", cwd=source)
        complete.touch()
    return where / f"python/bin/python{VERSION}t"


def main() -> None:
    steps.need(["apt-get", "dpkg-source", "gcc", "make", "tar"], APT_PACKAGES)
    where = steps.folder("freethreaded", fresh=False)
    python = steps.environment(where / "venv", build(where))
    tree = steps.copy_tree(where / "source")
    steps.say("NumPy and gelu_fast alone: the import must leave the GIL off")
    # No isolated build: it would take the newest NumPy, and build that from source where it has no cp313t wheel.
    steps.pip(python, "--only-binary=:all:", "numpy", "setuptools", "cython")
    steps.pip(python, "--no-build-isolation", tree)
    steps.installed(python, where / "venv")
    told = steps.run(python, "-c", "import sys, gelu_fast; print('GIL', sys._is_gil_enabled())", cwd=Path("/"))
    if "GIL False" not in told:
        steps.fail(f"importing gelu_fast turned the GIL on: {told}")
    steps.say("the kernel tests with the GIL off")
    steps.pip(python, "--only-binary=:all:", *steps.KERNEL_NEEDS)
    # By force: a test's other packages may turn it on, which is theirs to answer for.
    steps.run_tests(python, tree, *TESTS, "-k", steps.TIMED_OR_TORCH, PYTHON_GIL="0")
    steps.say("passed with the GIL off")


if __name__ == "__main__":
    main()
