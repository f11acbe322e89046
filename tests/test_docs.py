"""The code blocks of README.md and docs/ run, their links lead somewhere, and the API reference builds.

What stands behind a fence, and what becomes of the block, says doc_blocks.py. Each page runs in a process and a folder
of its own, so that what it imports or sets doesn't reach the other tests.
"""

import contextlib
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import doc_blocks
import pytest
from doc_blocks import PAGES, REASONS, ROOT, blocks_of

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
NOT_RUN = []
for one in PAGES:
    with contextlib.suppress(ValueError):  # a bad fence: test_blocks_run says so
        NOT_RUN += [block for block in blocks_of(one) if block.language in doc_blocks.RUN and block.reason]
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_blocks_run(page, tmp_path):
    pytest.importorskip("onnxruntime", reason="needs pip install 'gelu-fast[all]'")
    done = subprocess.run(
        [sys.executable, "-P", doc_blocks.__file__, page], cwd=tmp_path, capture_output=True, text=True, check=False,
        # Keras's own default is TensorFlow, which isn't in every environment.
        env=os.environ | {"KERAS_BACKEND": "torch", "TF_CPP_MIN_LOG_LEVEL": "3", "COLUMNS": "200", "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    ran = re.findall(r"^ran (.*)$", done.stdout, re.MULTILINE)
    assert ran == [block.where for block in blocks_of(page) if block.runs]


@pytest.mark.parametrize("block", NOT_RUN, ids=[block.where for block in NOT_RUN])
def test_block_that_needs_more(block):
    doc_blocks.check_unrun(block)
    if not block.runs:
        pytest.skip(f"{block.where} {block.reason}: {REASONS[block.reason][1]}")


def anchors(page):
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for match in LINK.finditer(text):
        path, _, anchor = (match[1] or match[2]).partition("#")
        if path.startswith(("http:", "https:")):
            continue
        goal = page.parent / path if path else page
        assert goal.exists(), f"{page.name}: {path}"
        assert not anchor or anchor in anchors(goal), f"{page.name}: {path}#{anchor}"


def test_files_named_in_prose_exist():
    """`gelu_fast/cpu/loops.h` and the like, in backquotes."""
    named = re.compile(r"`((?:gelu_fast|export|tests|benchmarks|accuracy-results)/[\w/.-]*\w)`")
    for page in PAGES:
        for path in named.findall(page.read_text("utf-8")):
            assert (ROOT / path).exists(), f"{page.name}: {path}"


def test_public_names_are_documented():
    """Every name of `gelu_fast.__all__` stands in docs/ or in README.md."""
    import gelu_fast

    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    missing = [name for name in gelu_fast.__all__ if not re.search(rf"\b{name}\b", text)]
    assert not missing


def fake(tmp_path, monkeypatch, text):
    monkeypatch.setattr(doc_blocks, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    return page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```\nmake test\n```\n", "behind the fence"),
        ("```python no-run: is slow\n1\n```\n", "expected one of needs a GPU"),
        ("```python\n1\n", "no end"),
        ("```text output\n1\n```\n", "without a block"),
        ("```text no-run: takes minutes\n1\n```\n", "behind the fence"),
    ],
)
def test_bad_fences_are_refused(tmp_path, monkeypatch, text, message):
    with pytest.raises(ValueError, match=message):
        blocks_of(fake(tmp_path, monkeypatch, text))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```python\nassert 1 == 2\n```\n", AssertionError),
        ("```python\nprint(1)\n```\n\n```text output\n2\n```\n", AssertionError),
        ("```python\nimport warnings\nwarnings.warn('old', stacklevel=1)\n```\n", UserWarning),
        ("```sh\ngelu-fast export --no-such-option\n```\n", AssertionError),
        ("```sh\nrm -r no-such-folder\n```\n", AssertionError),
    ],
)
def test_wrong_blocks_are_noticed(tmp_path, monkeypatch, text, error):
    page = fake(tmp_path, monkeypatch, text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        doc_blocks.run_page(page)


@pytest.mark.parametrize(
    "line",
    ["gelu-fast bench --no-such-option", "make no-such-target", "pip install 'gelu-fast[nonsense]'",
     "python benchmarks/no_such_file.py", "frobnicate"],
)  # fmt: skip
def test_unrun_commands_are_checked(line):
    with pytest.raises(AssertionError):
        doc_blocks.check_unrun(doc_blocks.Block(PAGES[0], 1, "sh", "takes minutes", line + "\n"))


def test_api_reference_builds(tmp_path):
    pytest.importorskip("pdoc", reason="needs pip install pdoc, which `make docs` uses")
    (modules,) = re.findall(r"^API := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-m", "pdoc", "-d", "numpy", "-o", tmp_path, *modules.split()],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for name in (name for name in modules.split() if not name.startswith("!")):
        public = getattr(importlib.import_module(name), "__all__", [])
        page = (tmp_path / Path(*name.split("."))).with_suffix(".html").read_text("utf-8")
        missing = [entry for entry in public if f'id="{entry}"' not in page and f"{name}.{entry}" not in modules]
        assert not missing, f"{name}: {missing}"
