"""The kernel, CLI, Numba, export and Dask tests with the lowest versions that pyproject.toml allows.

`minimum.py` does all; `minimum.py kernels cli jit export dask` names the parts; name==version in place of a bound looks
for one that works. torch is the one version that constraints.txt names: an older one is a download of gigabytes with
its CUDA libraries, and numba-cuda needs a GPU; both bounds are untested. Packages for testing alone (pytest and so on)
come in what version pip chooses.
"""

import re
import shutil
import sys
import tomllib

import steps

EXTRAS = ("cli", "onnx", "accuracy", "bench", "plot", "compare", "dask", "numba", "keras", "all")
PARTS = {  # patterns of test files
    "kernels": (*steps.KERNEL_TESTS, "tests/test_threads.py", "tests/test_ffn.py"),
    "cli": ("tests/test_cli*.py", "tests/test_accuracy_command.py"),
    "jit": ("tests/test_jit*.py",),
    "export": tuple(f"tests/test_{stem}*.py" for stem in (
        "export", "forms", "inspect", "loading", "quantize", "reference", "rewrite", "sources", "targets", "verify")),
    "dask": ("tests/test_score.py", "tests/test_cases_kernels_arrays.py"),
}  # fmt: skip
# transformers, scikit-learn and others: peers in tests alone, with no bound of ours
UNTESTED = ("libraries", "rewrite_models")
LEFT_OUT = "not import_time and not hugging_face"  # 80 ms on a busy machine; transformers, a peer in tests alone


def lowest() -> dict[str, str]:
    """name: the version after >= in pyproject.toml, of the package's own dependencies and its extras'."""
    project = tomllib.loads((steps.ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found = {}
    for requirement in project["dependencies"] + [r for extra in EXTRAS for r in extras[extra]]:
        if match := re.fullmatch(r"([\w.-]+(?:\[\w+\])?)>=([\w.]+)", requirement):
            found[match[1]] = match[2]
        elif not requirement.startswith("gelu-fast["):
            steps.fail(f"{requirement}: expected name>=version, or name[extra]>=version")
    return found


def torch() -> str:
    lines = (steps.ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def main() -> None:
    other = dict(word.split("==") for word in sys.argv[1:] if "==" in word)
    wanted = [word for word in sys.argv[1:] if "==" not in word] or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        steps.fail(f"expected some of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}", 2)
    steps.need(["gcc"], "gcc")
    where = steps.folder("minimum", fresh=False)
    pins = [f"{name}=={version}" for name, version in (lowest() | other).items()] + [torch()]
    tree, python = steps.copy_tree(where / "source"), where / "venv/bin/python"
    record = where / "venv/pins.txt"
    if not record.exists() or record.read_text() != "\n".join(pins):
        python = steps.environment(where / "venv")
        steps.say("the lowest versions")
        steps.pip(python, *pins, "pytest", "pytest-timeout", "hypothesis", "threadpoolctl", "expecttest")
        record.write_text("\n".join(pins))
    steps.pip(python, "--force-reinstall", "--no-deps", tree)
    shutil.rmtree(tree / "gelu_fast")
    steps.installed(python, where / "venv")
    names = sorted(name.lower().split("[")[0] for name in [*lowest(), "torch"])
    frozen = steps.run(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check").splitlines()
    print(*(line for line in frozen if line.split("==")[0].lower().replace("_", "-") in
            {n.replace("_", "-") for n in names}), flush=True)  # fmt: skip
    for part in wanted:
        steps.say(part)
        # Old packages warn about newer ones; that is no fault.
        found = sorted(str(p.relative_to(tree)) for pattern in PARTS[part] for p in tree.glob(pattern)
                       if not any(word in p.name for word in UNTESTED))  # fmt: skip
        steps.run_tests(python, tree, *found, "-W", "default", "-k", LEFT_OUT)
    steps.say(f"passed: {', '.join(wanted)}")


if __name__ == "__main__":
    main()
