"""`gelu-fast compare` and the files that pictures become."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from gelu_fast import output_files, pictures
from gelu_fast.cli import run
from gelu_fast.compare import ACTIVATIONS, cost, network, training

QUICK = ["--epochs", "1", "--seeds", "1"]


@pytest.fixture
def cli(tmp_path, monkeypatch, capfd):
    """Runs a command in an empty directory; gives the exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cost, "SIZE", 2048)
    monkeypatch.setattr(training, "DEPTHS", (1, 2))

    def call(*arguments):
        capfd.readouterr()
        code = run(["compare", *map(str, arguments)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def test_table(cli, tmp_path):
    code, out, err = cli()
    assert (code, err) == (0, "")
    assert os.listdir(tmp_path) == []
    for name in ACTIVATIONS:
        assert out.count(f"\n{name.split()[0]} ") >= 2
    assert "[−0.1700, ∞)" in out
    assert "50.0%" in out
    assert "\x1b" not in out


def test_json(cli):
    code, out, err = cli("--json")
    assert (code, err) == (0, "")
    found = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    assert list(found["activations"]) == list(ACTIVATIONS)
    relu = found["activations"]["ReLU"]
    assert relu["gradients"] == {"-3.0": 0, "0.0": 0, "3.0": 1}
    assert (relu["low"], relu["high"], relu["cost"]["forward_ratio"]) == (0, None, 1)


def test_pictures(cli, tmp_path):
    assert cli("-o", "out")[0] == 0
    assert sorted(os.listdir("out")) == ["activations.png", "activations.svg"]
    assert (tmp_path / "out/activations.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "out/activations.svg").read_text()
    assert svg.count("GELU tanh</text>") == 3
    code, out, err = cli("-o", "out")
    assert (code, out) == (2, "")
    assert err == "gelu-fast: --output: out/activations.png exists already; --overwrite replaces it\n"
    (tmp_path / "out/activations.svg").write_text("old")
    assert cli("-o", "out", "--overwrite")[0] == 0
    assert (tmp_path / "out/activations.svg").read_text() == svg  # the same data, the same bytes
    assert cli("-o", "a.pdf", "-o", "b.svg")[0] == 0
    assert sorted(os.listdir()) == ["a.pdf", "b.svg", "out"]


def test_train(cli):
    code, out, err = cli("--train", *QUICK, "-o", "out")
    assert (code, err) == (0, "")
    assert sorted(os.listdir("out")) == ["training.png", "training.svg"]
    assert len(re.findall(r"^[12] +\S.*%", out, re.M)) == 2 * len(ACTIVATIONS)
    code, out, err = cli("--train", *QUICK, "--json")
    assert (code, err) == (0, "")
    runs = json.loads(out)["runs"]
    assert len(runs) == 2 * len(ACTIVATIONS)
    assert json.loads(cli("--train", *QUICK, "--json")[1])["runs"] == runs


def test_quick(cli):
    found = json.loads(cli("--train", "--quick", "--json")[1])
    assert (found["epochs"], found["seeds"]) == (5, 1)
    assert len(found["runs"]) == 2 * len(ACTIVATIONS)


def test_a_network_that_diverges_is_null_in_json(cli, monkeypatch):
    monkeypatch.setattr(network, "RATE", 1e30)
    code, out, err = cli("--train", "--epochs", 2, "--seeds", 1, "--json")
    assert (code, err) == (0, "")
    runs = json.loads(out, parse_constant=lambda name: pytest.fail(name))["runs"]
    assert any(None in run["losses"] for run in runs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x.gif"], "--output: expected a name ending in .png or .svg or .pdf, got 'x.gif'"),
        (["-o", "no/such"], "--output: the folder no doesn't exist"),
        (["-o", "no/a.png"], "--output: the folder no doesn't exist"),
        (["-o", "there"], "--output: there is a file, expected a folder"),
        (["-o", "new.svg", "-o", "there.svg"], "--output: there.svg exists already"),
        (["--quick"], "--epochs, --seeds and --quick belong to --train"),
        (["--train", "--epochs", "0"], "--epochs"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_bad_usage(cli, tmp_path, arguments, message, monkeypatch):
    monkeypatch.setattr(cost, "costs", lambda *a: pytest.fail("worked before it looked"))
    for name in ("there", "there.svg"):
        (tmp_path / name).write_text("old")
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert sorted(os.listdir()) == ["there", "there.svg"]


def test_a_wrong_kernel_is_exit_code_1(cli, monkeypatch):
    monkeypatch.setattr(cost, "TOLERANCE", 1e-20)
    code, out, err = cli("-o", "out")
    assert (code, out) == (1, "")
    assert re.fullmatch(r"gelu-fast: GELU is wrong by .*; nothing was timed\n", err)
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("module", "package", "extra", "arguments"),
    [("matplotlib", "Matplotlib", "plot", ["-o", "out"]),
     ("sklearn", "scikit-learn", "compare", ["--train"])],
)  # fmt: skip
def test_a_missing_package_is_named(tmp_path, module, package, extra, arguments):
    code = f"import sys; sys.modules[{module!r}] = None; from gelu_fast.cli import run; sys.exit(run(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-Pc", code, "compare", *arguments], capture_output=True, text=True,
                          check=False, cwd=tmp_path)  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gelu-fast: this needs {package}, which can't be imported")
    assert done.stderr.endswith(f"pip install 'gelu-fast[{extra}]'\n")
    assert os.listdir(tmp_path) == []


def test_the_table_needs_neither(tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = sys.modules['sklearn'] = None;"
        "from gelu_fast.cli import run; sys.exit(run(['compare']))"
    )
    done = subprocess.run([sys.executable, "-Pc", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_leaves_nothing(tmp_path):
    """In the middle of a training that would take minutes, which says by a file that it has begun."""
    code = (
        "import sys, pathlib; from gelu_fast.cli import run; from gelu_fast.compare import training\n"
        "real = training.train\n"
        "def train(*arguments):\n"
        "    pathlib.Path(sys.argv[1]).touch()\n"
        "    return real(*arguments)\n"
        "training.train = train\n"
        "sys.exit(run(['compare', '--train', '--epochs', '100000', '-o', 'out']))"
    )
    begun = tmp_path / "begun"
    place = tmp_path / "place"
    place.mkdir()
    child = subprocess.Popen([sys.executable, "-Pc", code, str(begun)], cwd=place, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.05)
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert (child.returncode, out, err) == (130, "", "gelu-fast: interrupted\n")
    assert os.listdir(place) == []


def test_help_has_an_example(cli):
    code, out, _ = cli("--help")
    assert code == 0
    assert "Example: gelu-fast compare --train -o pictures" in " ".join(out.split())


# -- the files ----------------------------------------------------------------------------------------------------


def test_all_files_or_none(tmp_path):
    old, new = tmp_path / "old.svg", tmp_path / "new.svg"
    old.write_bytes(b"old")
    with pytest.raises(FileExistsError, match=r"old\.svg exists already"):
        output_files.write_all({new: b"new", old: b"new"}, overwrite=False)
    assert os.listdir(tmp_path) == ["old.svg"]
    assert old.read_bytes() == b"old"
    output_files.write_all({new: b"new", old: b"new"}, overwrite=True)
    assert (new.read_bytes(), old.read_bytes()) == (b"new", b"new")
    assert sorted(os.listdir(tmp_path)) == ["new.svg", "old.svg"]


def test_a_folder_made_in_vain_is_removed(tmp_path):
    made = tmp_path / "made"
    with pytest.raises(OSError, match="File name too long"):
        output_files.write_all({made / "a.svg": b"a", made / ("b" * 300): b"b"}, overwrite=False)
    assert os.listdir(tmp_path) == []


def test_spread():
    rng = np.random.default_rng(0)
    assert pictures.spread([], 0.1, 0, 1) == []
    assert pictures.spread([0.2, 0.9], 0.1, 0, 1) == [0.2, 0.9]
    assert pictures.spread([0.5, 0.5], 0.2, 0, 1) == pytest.approx([0.4, 0.6])
    assert pictures.spread([1.0, 1.0, 1.0], 0.1, 0, 1) == pytest.approx([0.8, 0.9, 1.0])
    assert pictures.spread([0.5] * 11, 0.5, 0, 1) == pytest.approx(np.linspace(0, 1, 11))
    for _ in range(200):
        wanted = list(rng.random(8) ** 3)
        places = pictures.spread(wanted, 0.1, 0, 1)
        assert min(np.diff(np.sort(places))) >= 0.1 - 1e-9
        assert min(places) >= -1e-9
        assert max(places) <= 1 + 1e-9
        assert [places[i] for i in np.argsort(wanted, kind="stable")] == sorted(places)
