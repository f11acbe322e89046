"""The benchmark's check: its reference is right, and a wrong kernel does not get past it."""

import numpy as np
import pytest

import gelu_fast as gf
from gelu_fast.bench import cells, check, command, report, suites, timing, work
from gelu_fast.bench.contenders import OURS, Contender


def measure(what, binding, size=1000):
    return cells.measure(what, work.Column(size, 1), [], timing.Effort(rounds=2, turn=1e-6, rest=0), binding=binding)


def bound(function):
    """A binding whose only contender is `function(x, out)`."""

    def binding(what, x, dy):
        out = np.zeros_like(x)
        return [Contender(OURS, lambda: function(x, out), lambda: out)]

    return binding


def three_units_off(x, out):
    gf.ufuncs.gelu(x, out)
    for _ in range(3):
        np.nextafter(out, np.float32(np.inf), out=out)


def last_left_out(x, out):
    gf.ufuncs.gelu(x[:-1], out[:-1])


def last_is_nan(x, out):
    gf.ufuncs.gelu(x, out)
    out[-1] = np.nan


WRONG = {
    "tanh": gf.ufuncs.gelu_tanh, "relu": lambda x, out: np.maximum(x, 0, out=out), "three units": three_units_off,
    "left out": last_left_out, "nan": last_is_nan,
}  # fmt: skip


@pytest.mark.parametrize("kernel", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("size", [1000, (1 << 18) + 7])
def test_wrong_kernel_is_caught_and_not_timed(kernel, size):
    cell = measure(work.EXACT, bound(kernel), size)
    assert len(cell.wrong) == 1
    assert "the bound is 2.0 ULP" in cell.wrong[0]
    assert cell.nanoseconds(OURS) is None
    assert cell.ratio is None
    assert not cell.to_dict()["rows"][0]["passed"]


def test_wrong_float64_is_caught():
    def single(x, out):
        out[:] = gf.gelu(x.astype(np.float32))

    assert measure(work.FLOAT64, bound(single)).wrong

    def three_off(x, out):  # within what the float64 reference itself is off by: mpmath sees it
        gf.ufuncs.gelu(x, out)
        for _ in range(3):
            np.nextafter(out, np.inf, out=out)

    assert measure(work.FLOAT64, bound(three_off)).wrong


def test_wrong_answer_fails_its_target_and_exits_1(found_nothing, capsys):
    cell = measure(work.EXACT, bound(gf.ufuncs.gelu_tanh), 4096)
    found_nothing.cells.append(cell)
    target = report.targets(found_nothing)[0]
    assert target["wrong"]
    assert target["passed"] is False
    assert command.publish(found_nothing) == 1
    printed = capsys.readouterr()
    assert "WRONG" in printed.out
    assert "WRONG: gelu_fast, exact forward, 4,096, 1 thread" in printed.err


def test_right_answers_exit_0(found_nothing):
    assert command.publish(found_nothing) == 0


@pytest.fixture
def found_nothing():
    nothing = suites.Plan("short", timing.Effort(rounds=1, turn=1e-6, rest=0), works=(), columns=(), data_works=())
    return suites.execute(nothing, [], {}, lambda line: None)


@pytest.mark.parametrize("what", work.WORKS, ids=lambda w: w.name)
def test_one_unit_too_much_is_seen(what):
    x, dy = (np.linspace(-4, 4, 999).astype(what.numpy_dtype) for _ in range(2))
    function = gf.gelu_backward if what.backward else gf.gelu
    y = function(dy, x, what.form) if what.backward else gf.gelu(x, what.form)
    exact = check.reference(what, x, dy if what.backward else None)
    assert check.check(what, x, dy if what.backward else None, y, exact, ours=True).passed
    off = y.copy()
    steps = {"float64": 3}.get(what.dtype, 6 if what.backward else 3 if what.dtype == "float32" else 1)
    for _ in range(steps):
        off[900:] = np.nextafter(off[900:], np.array(9, x.dtype))
    assert not check.check(what, x, dy if what.backward else None, off, exact, ours=True).passed


def test_reference_against_mpmath():
    mp = pytest.importorskip("mpmath").mp
    x = np.array([-12.5, -5, -1.25, -0.75, -0.01, 0.5, 3, 9], np.float32)
    dy = np.full_like(x, 2)
    with mp.workdps(40):
        slope = 2 * mp.sqrt(2 / mp.pi)
        forms = {
            "none": lambda t: t * mp.ncdf(t),
            "tanh": lambda t: t / (1 + mp.exp(-slope * (t + mp.mpf("0.044715") * t**3))),
            "quick": lambda t: t / (1 + mp.exp(mp.mpf("-1.702") * t)),
        }
        for form, function in forms.items():
            exact = [float(function(mp.mpf(float(v)))) for v in x]
            np.testing.assert_allclose(check.reference(work.Work(form), x), exact, rtol=1e-13)
            exact = [float(2 * mp.diff(function, mp.mpf(float(v)))) for v in x]
            found = check.reference(work.Work(form, backward=True), x, dy)
            np.testing.assert_allclose(found, exact, rtol=1e-11, atol=1e-15)
