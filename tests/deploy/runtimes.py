"""The runtimes that a folder of cases is run in: where each lives, and how it is started."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("GELU_FAST_DEPLOY_CACHE", ROOT / ".deploy"))
NODE_MODULES = CACHE / "node" / "node_modules"
OLD = ("1.17.3", "1.20.1")
# What each needs on the disk; setup.sh makes them.
NEEDS = {
    "newest": [],
    **{version: [CACHE / f"ort-{version}" / "bin" / "python"] for version in OLD},
    "node": [NODE_MODULES / "onnxruntime-node"],
    "wasm": [NODE_MODULES / "onnxruntime-web"],
    "chromium": [NODE_MODULES / "onnxruntime-web", NODE_MODULES / "playwright-core"],
}
PROGRAMS = {"node": ["node"], "wasm": ["node"], "chromium": ["node", "chromium"]}


def missing(name):
    """What a runtime lacks, as text; empty when it can be run."""
    lacks = [str(path) for path in NEEDS[name] if not path.exists()]
    lacks += [f"{program} on the PATH" for program in PROGRAMS.get(name, []) if not shutil.which(program)]
    return ", ".join(lacks)


def available():
    """The names of the runtimes that can be run here."""
    return [name for name in NEEDS if not missing(name)]


def command(name, folder, optimised=None):
    """The command line that runs a folder of cases in a runtime and prints its report."""
    extra = [str(folder), *([str(optimised)] if optimised else [])]
    if name == "newest" or name in OLD:
        python = sys.executable if name == "newest" else str(NEEDS[name][0])
        return [python, str(HERE / "run_python.py"), *extra]
    if name == "chromium":
        return ["node", str(HERE / "run_chromium.mjs"), str(NODE_MODULES), str(shutil.which("chromium")), str(folder)]
    return ["node", str(HERE / "run_node.mjs"), str(NODE_MODULES), name, *extra]


def run(name, folder, optimised=None, timeout=300):
    """The report of a runtime on a folder of cases.

    Raises
    ------
    RuntimeError
        If the runner itself failed, with the end of what it said; a model that a runtime refuses is a row instead.
    """
    done = subprocess.run(command(name, folder, optimised), capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{name}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)
