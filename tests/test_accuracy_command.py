"""`python -m gelu_fast.accuracy`: what it prints, its exit codes, its plots."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from gelu_fast.accuracy import exhaustive, functions, measure
from gelu_fast.accuracy.__main__ import main
from gelu_fast.bounds import ULP

ROWS = 9 * 4 + 3 * 2  # nine functions in four dtypes, three backward ones in two


@pytest.fixture
def small(monkeypatch):
    """Small samples, and bounds that hold whatever the kernels do."""
    for kind in measure.COUNTS:
        monkeypatch.setitem(measure.COUNTS, kind, (1 << 16, 1 << 17))
    for key in measure.ULP:
        monkeypatch.setitem(measure.ULP, key, 50.0)


def test_json_and_exit_codes(small, monkeypatch, capsys):
    assert main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"]
    assert len(found["rows"]) == ROWS
    assert {row["dtype"] for row in found["rows"]} == {"float16", "bfloat16", "float32", "float64"}
    assert all(0 < row["error"] < 50 for row in found["rows"] if row["dtype"] in ("float32", "float64"))
    monkeypatch.setitem(measure.ULP, ("gelu_grad", "float64"), 0.1)
    assert main(["--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    failed = {(row["function"], row["dtype"]) for row in rows if not row["passed"]}
    assert failed == {(name, "float64") for name in ("gelu_grad", "gelu_tanh_grad", "gelu_quick_grad")}


def test_tables(small, capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert len(re.findall(r"\bpass\b", text)) == ROWS
    assert main(["--markdown"]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    assert len(lines) == 2 + 12
    assert all(line.count("|") == 6 for line in lines)


@pytest.mark.parametrize(
    "arguments", [["--nonsense"], ["--exhaustive", "gelu_swish"], ["--exhaustive", "gelu", "--workers", "0"]]
)
def test_bad_usage(arguments, capsys):
    assert main(arguments) == 2
    assert "gelu-fast accuracy" in capsys.readouterr().err


def test_a_missing_package_is_named(monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "scipy" else found(name))
    assert main(["--json"]) == 2
    assert "needs scipy: pip install 'gelu-fast[accuracy]'" in capsys.readouterr().err


def test_exhaustive(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(exhaustive, "UNITS", 4)
    monkeypatch.setattr(exhaustive, "_UNIT", 1 << 15)
    assert main(["--exhaustive", "gelu", "--output", str(tmp_path), "--workers", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["results"][0]
    assert json.loads((tmp_path / "gelu.json").read_text())["isa"] == result["isa"]
    assert list(result["isa"]) == functions.available_isas()
    assert all(isa["inputs"] == 4 << 15 for isa in result["isa"].values())


def test_plot(tmp_path, monkeypatch, capsys):
    """Peers that are not there are named, not skipped in silence; the same data give the same file."""
    plots = pytest.importorskip("gelu_fast.accuracy.plots")

    def nowhere(function):
        raise plots.AbsentError("not installed")

    monkeypatch.setitem(plots.PEERS, "torch", nowhere)
    monkeypatch.setattr(plots, "_PER_BIN", 64)
    names = [f"error-{name}.svg" for name in functions.FUNCTIONS]
    assert main(["--plot", str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "new" / name) for name in names]
    first = {path.name: path.read_text() for path in (tmp_path / "new").iterdir()}
    assert sorted(first) == sorted(names)
    assert all("Not drawn: torch (not installed)" in text for text in first.values())
    assert main(["--plot", str(tmp_path / "new")]) == 2
    assert "exists already; --overwrite replaces it" in capsys.readouterr().err
    assert main(["--plot", str(tmp_path / "new"), "--overwrite"]) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == first


def test_the_results_in_the_repository_are_of_one_set_of_kernels():
    folder = Path(__file__).resolve().parents[1] / "accuracy-results"
    if not folder.is_dir():
        pytest.skip("needs accuracy-results/: run from a checkout")
    results = [json.loads((folder / f"{name}.json").read_text()) for name in functions.FUNCTIONS]
    assert len({(found["kernels_sha256"], *found["instruction_sets"]) for found in results}) == 1
    for name, found in zip(functions.FUNCTIONS, results, strict=True):
        assert found["function"] == name
        for isa in found["isa"].values():
            assert isa["inputs"] == 2**32
            assert isa["max_ulp"] <= ULP[functions.FUNCTIONS[name].kind, "float32"]
