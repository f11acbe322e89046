"""The benchmark's harness on tiny sizes: it catches wrong kernels, says who is absent, and puts settings back.

No speed is asserted anywhere.
"""

import importlib.util
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

import gelu_fast as gf
from gelu_fast import bench
from gelu_fast.bench import cells, check, command, contenders, data, isa, peers, report, suites, timing, work
from gelu_fast.bench.contenders import OURS, Contender, Peer
from gelu_fast.bench.markdown import render

TINY = timing.Effort(rounds=2, turn=1e-6, slow=1e-3, least=2, rest=0)
SMALL, TWO = work.Column(1000, 1), work.Column(3000, 2)
# torch.compile takes seconds for each function.
HERE, ABSENT = contenders.present([p for p in peers.roster() if not p.compiles])


def measure(what, *args, column=SMALL, **kwargs):
    return cells.measure(what, column, *args, TINY, **kwargs)


class WrongPeer(Peer):
    name = "relu"

    def bind(self, what, x, dy, threads):
        out = np.empty_like(x)
        return [Contender(self.name, lambda: np.maximum(x, 0, out=out), lambda: out)]


class FailingPeer(Peer):
    name = "broken"

    def bind(self, what, x, dy, threads):
        raise OSError("no compiler here")


def test_wrong_peer_is_named_and_never_the_best():
    cell = measure(work.EXACT, [WrongPeer(), FailingPeer()])
    assert cell.best_peer is None
    row = next(r for r in cell.to_dict()["rows"] if r["name"] == "relu")
    assert not row["passed"]
    assert "ns_per_call" not in row
    assert cell.notes == {"broken": "OSError: no compiler here"}
    assert cell.nanoseconds(OURS) > 0


def settings():
    found = {"gelu_fast": gf.get_num_threads(), "affinity": os.sched_getaffinity(0)}
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        found["torch"], found["inference"] = torch.get_num_threads(), torch.is_inference_mode_enabled()
    return found


@pytest.mark.parametrize("column", [SMALL, TWO], ids=lambda c: c.name)
@pytest.mark.parametrize("what", work.WORKS, ids=lambda w: w.name)
def test_every_work_with_the_real_peers(what, column):
    if importlib.util.find_spec("torch"):
        import torch  # noqa: F401  (so that its settings are compared)
    before = settings()
    cell = measure(what, HERE, column=column)
    assert settings() == before
    assert not cell.wrong
    rows = cell.to_dict()["rows"]
    assert [r["name"] for r in rows if not r["passed"]] == []
    assert len(rows) > 3 or not HERE
    for row in rows:
        assert row["ns_per_call"] > 0
        assert row["gelem_per_s"] == pytest.approx(column.size / row["ns_per_call"])
        assert len(row["samples_ns"]) == 2
    # Whoever has no row says why.
    for peer in HERE:
        assert peer.name in cell.notes or any(r["name"].startswith(peer.name) for r in rows), peer.name
    assert all("Error" not in reason for reason in cell.notes.values()), cell.notes


@pytest.mark.parametrize("threads", [1, 2])
def test_thread_settings_hold_in_each_turn(threads):
    torch = pytest.importorskip("torch")
    seen = []

    class Meddler(Peer):  # as Numba's start does to torch
        name = "meddler"

        def bind(self, what, x, dy, threads):
            torch.set_num_threads(3)
            return [Contender(self.name, lambda: gf.gelu(x), lambda: gf.gelu(x))]

    class Watched(type(HERE[0])):
        def bind(self, what, x, dy, threads):
            (contender,) = super().bind(what, x, dy, threads)
            call = lambda: (seen.append(torch.get_num_threads()), contender.call())  # noqa: E731
            return [Contender("torch", call, contender.result)]

    before = torch.get_num_threads()
    try:
        measure(work.EXACT, [Watched(), Meddler()], column=work.Column(500, threads))
    finally:
        torch.set_num_threads(before)
    assert HERE[0].name == "torch"
    assert set(seen) == {threads}


def test_absent_peers_are_named():
    class NotThere(Peer):
        name = "fancy library"
        packages = ("json", "no_such_package_here")

    here, absent = contenders.present([NotThere(), WrongPeer()])
    assert [p.name for p in here] == ["relu"]
    assert absent == {"fancy library": "no_such_package_here not installed"}
    assert set(ABSENT) == {p.name for p in peers.roster() if any(not importlib.util.find_spec(q) for q in p.packages)}


@pytest.fixture(scope="module")
def found():
    plan = suites.Plan(
        "short", TINY, works=(work.EXACT, work.BFLOAT16), columns=(SMALL, work.SMALL), data_column=SMALL,
        sweep_effort=TINY, sweep_works=(work.EXACT,), sweep_sizes=(64, 500), sweep_threads=(1,),
    )  # fmt: skip
    lines = []
    results = suites.execute(plan, HERE, {"fancy library": "not installed"}, lines.append)
    assert any("sweep" in line for line in lines)
    return results


def test_json(found):
    read = json.loads(report.to_json(found))
    assert read["schema"] == 1
    wanted = {"cpu", "caches", "cpus", "isa", "versions", "settings", "load", "cpus_taken_by_others"}
    assert wanted <= set(read["machine"])
    assert read["machine"]["versions"]["numpy"] == np.__version__
    assert read["absent"]["fancy library"] == "not installed"
    assert [c["data"] for c in read["data"]] == [d for d in data.DATA if d not in read["absent"]]
    cell = read["cells"][0]
    assert cell["work"] == "exact forward"
    assert (cell["size"], cell["threads"]) == (1000, 1)
    assert cell["best_peer"] in {r["name"] for r in cell["rows"]} or not HERE
    row = cell["rows"][0]
    assert row["name"] == OURS
    assert row["gb_per_s"] == pytest.approx(8 * row["gelem_per_s"])
    assert {"ns_per_call", "spread", "max_ulp_error", "bound", "calls_per_sample"} <= set(row)
    assert {(p["name"], p["size"]) for p in read["front_door"]} >= {("gelu(x)", n) for n in (1, 64, 4096)}
    assert read["allocation"][0]["name"] == "gelu_fast"
    assert len(read["layouts"]) == 3
    for target in read["targets"]:  # only the columns and works that have one
        assert target["size"] == 4096
        assert target["passed"] in ((target["measured"] or 0) >= target["target"], None)
    assert len(read["targets"]) == 2


def test_tables(found):
    text = io.StringIO()
    report.show(found, Console(file=text, width=200))
    printed = text.getvalue()
    assert "absent: fancy library: not installed" in printed
    assert "N(0,4)" in printed
    assert "targets met" in printed
    busy = found.machine["cpus_taken_by_others"] or 0
    assert ("NOT QUIET" in printed) == (busy > 0.1)
    assert -0.5 < busy <= os.cpu_count()
    if HERE:
        assert "no row: " in printed


def test_markdown(found):
    lines = render(report.to_dict(found)).split("\n")
    (row,) = [line for line in lines if line.startswith("| exact forward |")]
    ours = found.cells[0].to_dict()["rows"][0]["gelem_per_s"]
    assert row.startswith(f"| exact forward | {ours:.2f}")
    assert ("×" in row) == bool(HERE)
    assert any(line.startswith("| N(0,4) |") for line in lines)


def test_files(found, tmp_path, capsys):
    """All or none, and none over another unless asked."""
    pytest.importorskip("matplotlib")
    files = [tmp_path / name for name in ("speed.json", "speed.svg", "speed.md")]
    code = int(bool(found.wrong))
    assert command.publish(found, *files) == code
    assert sorted(tmp_path.iterdir()) == sorted(files)
    whole = [path.read_bytes() for path in files]
    assert json.loads(whole[0])["schema"] == 1
    assert b"<svg" in whole[1]
    files[0].write_text("old")
    files[2].unlink()
    with pytest.raises(FileExistsError, match=r"--json, --plot, --markdown: .*exists already; --overwrite"):
        command.publish(found, *files)
    assert files[0].read_text() == "old"
    assert not files[2].exists()
    assert command.publish(found, *files, overwrite=True) == code
    assert json.loads(files[0].read_bytes())["schema"] == 1
    capsys.readouterr()


def made(name, nanoseconds):
    return cells.Row(name, check.Verdict(True, 0, 0, "", 1), timing.summary([nanoseconds] * 3, 1))


def test_ratio_and_verdict():
    cell = cells.Cell(work.EXACT, work.LARGE, data.NORMAL)
    cell.rows = [made(OURS, 100), made(contenders.COPY, 80), made("slow", 300), made("fast", 110)]
    assert cell.best_peer.name == "fast"
    peer, limit = report.targets(suites.Results("short", {}, {}, cells=[cell]))
    assert (peer["measured"], peer["target"], peer["passed"]) == (pytest.approx(1.1), 1.2, False)
    assert (limit["against"], limit["measured"], limit["passed"]) == ("copy", 0.8, False)


def test_turns_alternate_and_repeat_short_calls():
    order = []

    def contender(name):
        return Contender(name, lambda: order.append(name), lambda: np.empty(0))

    effort = timing.Effort(rounds=3, turn=0, slow=1, least=1, rest=0)
    times = timing.compare([contender("A"), contender("B")], effort)
    assert [t.calls for t in times] == [1, 1]
    assert "".join(order[-12:]) == "AABB" * 3  # one call to warm, one to time
    assert timing.summary([1.0, 2.0, 30.0], 1).median == 2


@pytest.mark.parametrize("name", data.DATA)
def test_data(name):
    needed = {data.DIGITS: "sklearn", data.BERT: "torch"}.get(name)
    if needed and not importlib.util.find_spec(needed):
        with pytest.raises(data.AbsentError, match="not installed"):
            data.make(name, 5000)
        return
    x = data.make(name, 5000)
    assert x.shape == (5000,)
    assert x.dtype == np.float32
    assert x.ctypes.data % 64 == 0
    assert np.isfinite(x).all()
    np.testing.assert_array_equal(x, data.make(name, 5000))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")
def test_pinned_puts_the_cpus_back():
    before = os.sched_getaffinity(0)
    with contenders.pinned(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--plot", "speed.txt"], 2, "expected a name ending in"),
        (["--json", "/no/such/folder/speed.json"], 2, "--json: the folder /no/such/folder doesn't exist"),
        (["--markdown", "there"], 2, "--markdown: there exists already; --overwrite replaces it"),
        (["--json", "new", "--markdown", "new"], 2, "--json, --markdown: expected different files"),
        (["--isa", "mmx"], 2, "invalid choice"),
        (["--help"], 0, ""),
    ],
)
def test_command_line(arguments, code, said, capsys, tmp_path, monkeypatch):
    if "--plot" in arguments:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").touch()
    assert bench.main(arguments) == code
    assert said in capsys.readouterr().err


def test_isa_reaches_the_child():
    program = "import gelu_fast as gf; print(gf.cpu_info()['isa'])"
    if "avx2" not in gf.cpu_info()["available"]:
        pytest.skip("needs AVX2")
    assert isa.run_limited("avx2", ["--help"]) == 0
    environment = os.environ | isa.LIMITS["avx2"]
    out = subprocess.run([sys.executable, "-P", "-c", program], env=environment, capture_output=True, check=True)
    assert out.stdout.split() == [b"avx2"]


def test_importing_it_imports_no_peer():
    program = (
        "import sys, gelu_fast.bench.command\n"
        "print(sorted({'torch', 'onnxruntime', 'jax', 'scipy', 'numba', 'matplotlib', 'rich'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=True, text=True)
    assert out.stdout.strip() == "[]"
