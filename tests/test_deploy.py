"""Exported files in the runtimes that people deploy to, each loading and running them for real.

The onnxruntime of this Python always runs. onnxruntime 1.17.3 and 1.20.1 in environments of their own,
onnxruntime-node, and onnxruntime-web under node and in a headless Chromium run where tests/deploy/setup.sh has put
them, as `make test-deploy` does; with GELU_FAST_DEPLOY=1 a missing one is a failure.
"""

import functools
import itertools
import json
import os
import shutil

import compare
import facts
import judge
import make_cases
import numpy as np
import oracle
import probe_models
import pytest
import reference
import runtimes

from gelu_fast.export import export_ffn, targets

NAMES = list(runtimes.NEEDS)
ALL_LEVELS = set(make_cases.LEVELS)


@pytest.fixture(params=NAMES)
def runtime(request):
    """The name of a runtime that is here."""
    lacks = runtimes.missing(request.param)
    if lacks and not os.environ.get("GELU_FAST_DEPLOY"):
        pytest.skip(f"runs after `make test-deploy` has installed the runtimes; missing: {lacks}")
    assert not lacks, f"missing: {lacks}"
    return request.param


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """A folder with all deployment cases."""
    folder = tmp_path_factory.mktemp("cases")
    make_cases.write(folder)
    return folder


@pytest.fixture(scope="module")
def probes(tmp_path_factory):
    """A folder with all probe models."""
    folder = tmp_path_factory.mktemp("probes")
    probe_models.write(folder)
    return folder


def test_every_case_loads_runs_and_agrees(runtime, cases, tmp_path):
    report = runtimes.run(runtime, cases, tmp_path)
    found = judge.faults(runtime, cases, report)
    shares = [batch["share"] for row in report["rows"] for batch in row["batches"]]
    print(f"{report['runtime']} {report['version']}: {len(report['rows'])} sessions, {len(shares)} runs, largest error "
          f"{max(shares):.2f} of what is tolerated, {len(found)} faults")  # fmt: skip
    assert not found, "\n".join(found)
    assert report.get("outside", []) == []  # the page asked no other host


@pytest.fixture(scope="module")
def found_facts(probes, tmp_path_factory):
    """A function: the facts of a runtime, which is asked once."""
    return functools.cache(
        lambda name: facts.summarise(probes, runtimes.run(name, probes, tmp_path_factory.mktemp("kept")))
    )


def test_kernels(runtime, found_facts):
    """What export/targets.py is built on, asked of the runtime itself."""
    found = found_facts(runtime)
    read, version = (max(found["opsets"]), max(found["irs"])), tuple(map(int, found["version"].split(".")[:2]))
    # Of a release that is newer than this table, only that it reads no less.
    assert read == judge.READS[runtime] or (version > (1, 32) and min(np.subtract(read, judge.READS[runtime])) >= 0)
    kernels = found["kernels"]
    for operator in (*probe_models.BINARY[:6], "MatMul", "Abs", "Exp", "Tanh", "Sigmoid", "Less", "Where"):
        assert kernels[operator]["float64"] == kernels[operator]["float32"] == "kernel", operator
        assert kernels[operator]["float16"].startswith("kernel"), operator  # between Casts or not
        assert kernels[operator]["bfloat16"] == f"disabled: load fails: no kernel for {operator}"
    assert kernels["Erf"]["float32"] == "kernel"
    assert "no kernel for Erf" in kernels["Erf"]["float64"]
    assert "no kernel for Erf" in kernels["Gelu"]["float64"]
    assert kernels["Gelu tanh"]["float64"] == "function body, through 5 casts"
    native = "function body, through 3 casts" if runtime == "1.17.3" else "kernel"
    assert kernels["Gelu"]["float32"] == native
    assert kernels["Gelu"]["float16"] == "function body, through 2 casts"  # no float16 kernel anywhere
    for operator in ("Gelu", "FastGelu", "BiasGelu", "QuickGelu"):
        assert kernels[f"com.microsoft.{operator}"]["float32"] == "kernel"
    # A float64 x·Sigmoid(1.702x) is fused into an operator that has no such kernel; mended in 1.32.
    quick = found["chains"]["quick: h sigmoid(k h)"]["rank 2, float64, opset 17"]
    assert ("all" in quick and "no kernel" in quick["all"]) == (version < (1, 32))


def test_chains_that_are_fused(runtime, found_facts):
    """Which spellings onnxruntime knows: the fusable form has to be one of them, and rewriting is for the others."""
    fused = {"none: div, half last", "none: div, half first", "tanh: pow, half first", "tanh: factored, half first",
             "quick: sigmoid(h k) h", "quick: h sigmoid(k h)"}  # fmt: skip
    for chain, lines in probe_models.CHAINS.items():
        if any("Gelu" in line for line in lines):
            continue
        for key, found in found_facts(runtime)["chains"][chain].items():
            if "float32" in key:
                kept = found.get("all", found.get("every level"))
                assert any(name in kept for name in judge.WHOLE) == (chain in fused), (chain, key, kept)


def test_targets_promise_no_more_than_is_read():
    names = {("onnxruntime", (1, 17)): "1.17.3", ("onnxruntime", (1, 20)): "1.20.1", ("onnxruntime", (1, 32)): "newest",
             ("onnxruntime-web", (1, 30)): "wasm"}  # fmt: skip
    rows = {(row.name, row.version[:2]): row for row in targets.RUNTIMES}
    assert rows.keys() >= names.keys()
    for key, name in names.items():
        assert rows[key].opset <= judge.READS[name][0]
        assert rows[key].ir_version <= judge.READS[name][1]
        assert rows[key].native == (name != "1.17.3")


@pytest.mark.parametrize("form", make_cases.FORMS)
@pytest.mark.parametrize("formula", make_cases.FORMULAS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_impossible_requests_are_refused(tmp_path, form, formula, dtype):
    def export():
        return export_ffn(make_cases.source("bare", dtype)[0], tmp_path / "m.onnx", target=make_cases.ANY, form=form,
                          approximate=formula, verify=False)  # fmt: skip

    if not make_cases.refused(form, formula, dtype):
        assert export().opset <= 20
        return
    with pytest.raises(ValueError, match=r"form.*'primitive'"):
        export()
    assert not list(tmp_path.iterdir())


def test_cases_cover_what_is_promised(cases):
    asks = [(case["ask"], case) for case in compare.read_cases(cases)]
    combinations = {(ask["form"], ask["formula"], case["dtype"], ask["rank"]) for ask, case in asks
                    if ask["target"] == make_cases.ANY}  # fmt: skip
    assert len(combinations) == 2 * (2 + 4 * 3) * 2 + 3 * 2  # float32 and float16, native without quick; float64
    assert all(set(case["levels"]) == ALL_LEVELS for _, case in asks)
    for ask, case in asks:
        assert ask["kind"] == "bare" or [batch["shape"][0] for batch in case["batches"]] == [0, 1, 7]
    assert sum(bool(case["data"]) for _, case in asks) == 2
    assert all((ask["opset"], ask["ir"]) <= (20, 9) for ask, _ in asks if ask["target"] == make_cases.ANY)


def _subset(folder, goal, wanted):
    """A copy of the cases whose `ask` is wanted."""
    subset = goal / "subset"
    subset.mkdir()
    chosen = [case for case in compare.read_cases(folder) if wanted(case["ask"])]
    for case in chosen:
        stored = {batch[key] for batch in case["batches"] for key in ("x", "y") if key in batch}
        for name in (case["model"], *case.get("data", []), *stored):
            shutil.copy(folder / name, subset / name)
    (subset / "cases.json").write_text(json.dumps({"cases": chosen}))
    return subset


def _bare(ask):
    return ask["kind"] == "bare" and ask["form"] == "fusable" and ask["formula"] == "none"


WRONG = ("tanh", "bias", "operators", "refused", "right")


def _spoil(path, wrong, dtype):
    """Replace a case's model by one that is wrong in the way named."""
    options = {"target": make_cases.ANY, "form": "fusable", "verify": False, "overwrite": True}
    ((w1, _, w2, _),) = make_cases.source("bare", dtype)
    if wrong == "tanh":
        export_ffn((w1, None, w2, None), path, approximate="tanh", **options)
    elif wrong == "bias":
        export_ffn((w1, np.full(1, 2e-3, dtype), w2, None), path, approximate="none", **options)
    elif wrong == "operators":  # the right values by another way
        export_ffn((w1, None, w2, None), path, approximate="none", **{**options, "form": "primitive"})
    elif wrong == "refused":
        path.write_bytes(b"no model")


@pytest.mark.parametrize("name", ["newest", "wasm"])
def test_a_wrong_model_is_seen(cases, tmp_path, name):
    if runtimes.missing(name):
        pytest.skip(f"runs after `make test-deploy` has installed the runtimes; missing: {runtimes.missing(name)}")
    subset = _subset(cases, tmp_path, lambda ask: _bare(ask) and ask["target"] == make_cases.ANY)
    entries = []
    for case, wrong in itertools.product(compare.read_cases(subset), WRONG):
        path = subset / f"{wrong}-{case['model']}"
        shutil.copy(subset / case["model"], path)
        _spoil(path, wrong, case["dtype"])
        entries.append({**case, "id": f"{wrong}-{case['id']}", "model": path.name})
    (subset / "cases.json").write_text(json.dumps({"cases": entries}))
    (tmp_path / "kept").mkdir()
    report = runtimes.run(name, subset, tmp_path / "kept")
    found = judge.faults(name, subset, report)
    assert {entry["dtype"] for entry in entries} == {"float32", "float16"}
    for entry in entries:
        lines = [line for line in found if line.startswith(entry["id"] + " ")]
        wrong = entry["id"].split("-")[0]
        if wrong == "operators":
            assert len(lines) == 2
            assert all("GELU ended as [], expected ['Gelu']" in line for line in lines)
        else:
            assert len(lines) == len(ALL_LEVELS) * (wrong != "right"), lines
    cut = judge.faults(name, subset, {**report, "rows": report["rows"][1:]})
    assert [line for line in cut if "not run" in line] == [f"{report['rows'][0]['case']} at disabled: not run"]


def test_a_model_that_reads_too_easily_is_seen(cases, tmp_path, monkeypatch):
    """`READS` is proven from both sides: a file beyond it has to be refused."""
    subset = _subset(cases, tmp_path, lambda ask: _bare(ask) and ask["target"] == make_cases.ANY)
    monkeypatch.setitem(judge.READS, "newest", (12, 7))
    found = judge.faults("newest", subset, runtimes.run("newest", subset))
    assert found
    assert all("read, though its opset is" in line for line in found)


@pytest.mark.parametrize("formula", make_cases.FORMULAS)
def test_the_oracle_is_right(formula):
    for x in (-20.0, -13.24, -5.6, -2.5, -0.75, -1e-5, 0.3, 1.0, 2.2, 9.0):
        exact = reference.reference(x, formula, 0)
        assert abs(oracle.gelu(x, formula) - exact) <= abs(exact) * 1e-13 + 5e-324, x
    assert oracle.gelu(-np.inf, formula) == 0
    assert oracle.gelu(np.inf, formula) == np.inf
    assert np.isnan(oracle.gelu(np.nan, formula))


def test_error_of():
    tolerance = {"absolute": 0.25, "relative": 0.5}
    want = np.array([[1.0, -3.0], [np.nan, np.inf]])
    assert compare.error_of(want, want, tolerance) == (0, 0)
    assert compare.error_of(np.add(want, [[0.875, 0], [0, 0]]), want, tolerance) == (0.875, 0.5)
    for wrong in ([[1, np.nan], [np.nan, np.inf]], [[1, -3], [0, np.inf]], [[1, -3], [np.nan, -np.inf]], [[1, -3]]):
        assert compare.error_of(wrong, want, tolerance) == (np.inf, np.inf)
    assert compare.error_of(np.ones((0, 2)), np.ones((0, 2)), tolerance) == (0, 0)
