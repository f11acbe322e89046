"""The fenced code blocks of a Markdown page, and a way to run them: in order, in one namespace, in the current folder.

The word behind a fence says what becomes of its block:

    python       compiled and run; a warning that comes from it or from gelu_fast is an error
    sh           lines that begin with gelu-fast are run through the command line and must exit with 0
    javascript   run by node
    text output  what the block before it must have printed; "..." stands for anything, runs of blanks are alike
    text         shown, not run; so are cpp and html

Behind python, sh and javascript may stand ``no-run: REASON``, one of `REASONS`; where what the reason names is there,
the block is run nonetheless. A block that is not run is checked as far as it can be without running it.

``python doc_blocks.py PAGE`` runs a page and prints where each block that it ran stands.
"""

import ast
import contextlib
import doctest
import functools
import importlib.util
import io
import linecache
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
SHOWN = ("text", "cpp", "html")
RUN = ("python", "sh", "javascript")
NODE_MODULES = Path(os.environ.get("GELU_FAST_DEPLOY_CACHE", ROOT / ".deploy")) / "node" / "node_modules"


def _installed(*names):
    return all(importlib.util.find_spec(name) for name in names)


def _has_gpu():
    if not _installed("numba_cuda"):
        return False
    from numba import cuda

    return bool(cuda.is_available())


def _has_node():
    return shutil.which("node") is not None and (NODE_MODULES / "onnxruntime-node").is_dir()


def _never():
    return False


# Reason -> whether the block can be run after all; the second text says when, for the list of what is skipped.
REASONS = {
    "needs a GPU": (_has_gpu, "runs where numba-cuda finds a GPU"),
    "needs JAX and TensorFlow": (lambda: _installed("jax", "tensorflow"), "runs where both are installed"),
    "needs onnxruntime-node": (_has_node, "runs after `make test-deploy` has installed it"),
    "needs the network": (_never, "never runs; tests/test_page.py makes a page from a local copy"),
    "needs a cluster": (_never, "never runs; tests/test_score.py starts a cluster of its own"),
    "takes minutes": (_never, "never runs; its options are compared with --help"),
    "runs in the repository": (_never, "never runs; its files and targets are looked up"),
}


@dataclass(frozen=True)
class Block:
    """A fenced block: `line` is that of its first line of code, `output` what it must print, if that is shown."""

    page: Path
    line: int
    language: str
    reason: str | None
    code: str
    output: str | None = None

    @property
    def where(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self):
        return self.language in RUN and (self.reason is None or REASONS[self.reason][0]())


def blocks_of(page):
    """The blocks of a page in order; ValueError where a fence is not as this module's docstring says."""
    found, inside, info, start, lines = [], False, "", 0, []
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if not line.startswith("```"):
            if inside:
                lines.append(line)
        elif not inside:
            inside, info, start, lines = True, line[3:].strip(), number + 1, []
        else:
            inside = False
            _append(found, page, start, info, "\n".join(lines) + "\n")
    if inside:
        raise ValueError(f"{page.relative_to(ROOT)}:{start - 1}: the block has no end")
    return found


def _append(found, page, line, info, code):
    language, _, rest = info.partition(" ")
    where = f"{page.relative_to(ROOT)}:{line - 1}"
    if info == "text output":
        if not found or found[-1].language not in RUN:
            raise ValueError(f"{where}: an output without a block before it")
        before = found.pop()
        found.append(Block(before.page, before.line, before.language, before.reason, before.code, code))
        return
    reason = rest.removeprefix("no-run:").strip() if rest else None
    if language not in (*RUN, *SHOWN) or (rest and (language in SHOWN or not rest.startswith("no-run:"))):
        raise ValueError(f"{where}: expected one of {', '.join((*RUN, *SHOWN))} behind the fence, got {info!r}")
    if reason is not None and reason not in REASONS:
        raise ValueError(f"{where}: no-run: expected one of {', '.join(REASONS)}, got {reason!r}")
    found.append(Block(page, line, language, reason, code))


def commands_of(block):
    """The words of each command of a sh block, comments and continuation lines resolved."""
    joined = block.code.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def run_page(page):
    """Run all blocks of a page that can be run, in the current folder."""
    namespace = {"__name__": "__main__"}
    for block in blocks_of(page):
        if not block.runs:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if block.language == "python":
                run_python(block, namespace)
            elif block.language == "sh":
                run_sh(block)
            else:
                run_javascript(block)
        got = printed.getvalue()
        if block.output is not None:
            options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            if not doctest.OutputChecker().check_output(block.output, got, options):
                raise AssertionError(f"{block.where}: expected\n{block.output}\ngot\n{got}")
        print(f"ran {block.where}")


def run_python(block, namespace):
    source = "\n" * (block.line - 1) + block.code  # so that a traceback has the page's line numbers
    linecache.cache[block.where] = (len(source), None, source.splitlines(keepends=True), block.where)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module="__main__|gelu_fast")
        exec(compile(source, block.where, "exec"), namespace)


def run_sh(block):
    from gelu_fast.cli import run

    for words in commands_of(block):
        if words[0] != "gelu-fast":
            raise AssertionError(f"{block.where}: {words[0]} can't be run here; the block needs a no-run: REASON")
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = run(words[1:])
        if code:
            raise AssertionError(f"{block.where}: {shlex.join(words)} exits with {code}: {said.getvalue()}")


def run_javascript(block):
    if not Path("node_modules").exists():
        Path("node_modules").symlink_to(NODE_MODULES, target_is_directory=True)
    script = Path("block.mjs")
    script.write_text(block.code, "utf-8")
    done = subprocess.run(["node", script], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{block.where}: node exits with {done.returncode}: {done.stderr}")
    print(done.stdout, end="")


def check_unrun(block):
    """What can be told of a block without running it; AssertionError where it is wrong."""
    if block.language == "python":
        ast.parse(block.code, block.where)
    elif block.language == "sh":
        for words in commands_of(block):
            _check_command(block, words)


def _check_command(block, words):
    first, *rest = words
    if first == "gelu-fast":
        options = {word.partition("=")[0] for word in rest if word.startswith("-")}
        unknown = options - options_of(rest[0])
        assert not unknown, f"{block.where}: gelu-fast {rest[0]} has no {', '.join(sorted(unknown))}"
    elif first == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert set(rest) <= set(targets), f"{block.where}: the Makefile has not all of {rest}"
    elif first in ("pip", ".venv/bin/pip"):
        assert rest[0] == "install", block.where
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        for package in rest[1:]:
            name, _, wanted = package.rstrip("]").partition("[")
            assert name != "gelu-fast" or not wanted or set(wanted.split(",")) <= set(extras), block.where
    elif first in ("python", ".venv/bin/python", ".venv/bin/pytest", "bash"):
        files = [word for word in rest if re.fullmatch(r"[\w/]+\.(py|sh)", word)]
        assert all((ROOT / file).is_file() for file in files), f"{block.where}: not all of {files} are there"
    else:
        assert first in ("dask", "npm", "sudo", "cd", "."), f"{block.where}: {first} is no command known here"


@functools.cache
def options_of(command):
    """The options that ``gelu-fast COMMAND --help`` lists."""
    done = subprocess.run(
        [sys.executable, "-Pm", "gelu_fast", command, "--help"], capture_output=True, text=True, check=False,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, f"gelu-fast {command} --help exits with {done.returncode}: {done.stderr}"
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", done.stdout))


if __name__ == "__main__":
    run_page(Path(sys.argv[1]).resolve())
