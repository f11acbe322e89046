"""The committed tables are what the generator makes, and as good as they say.

The generator comes from the installed package; the C header exists in the source tree alone, beside these tests.
"""

from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
import reference as ref

from gelu_fast import coefficients, generate_coefficients, generate_cuda_coefficients, generate_jit_coefficients

HEADER = Path(__file__).parent.parent / "gelu_fast" / "cpu" / "coefficients.h"
TABLES = {layout: getattr(coefficients, f"{layout.upper()}_TABLES") for layout in ("f32", "f32x32", "f64", "f64x16")}
F32_SCALE = mp.mpf(float.fromhex(coefficients.F32_EXP["scale"]))
KEYS = [(layout, *key) for layout in TABLES for key in TABLES[layout]]


@pytest.fixture(scope="module")
def generated():
    """About two CPU minutes, on all CPUs."""
    return generate_coefficients.generate()


def test_python_table(generated):
    committed = Path(coefficients.__file__).read_text()
    jit = generate_jit_coefficients.generate_jit()
    cuda = generate_cuda_coefficients.generate_cuda()
    assert first_difference(generate_coefficients.render_python(generated, jit, cuda), committed) is None


def test_c_header(generated):
    if not HEADER.exists():
        pytest.skip("the tests run outside the source tree")
    assert first_difference(generate_coefficients.render_c(generated), HEADER.read_text()) is None


def first_difference(made, committed):
    """The first line that differs, or None; pytest's own comparison of 100 KB takes minutes."""
    ours, theirs = made.split("\n"), committed.split("\n")
    for number, (a, b) in enumerate(zip(ours, theirs, strict=False), 1):
        if a != b:
            return number, a, b
    return None if len(ours) == len(theirs) else (min(len(ours), len(theirs)) + 1,)


def test_a_changed_digit_is_seen():
    text = Path(coefficients.__file__).read_text()
    at = text.index("0x1.", len(text) // 2)
    assert first_difference(text, text[:at] + "0x1.f" + text[at + 4:]) is not None
    assert first_difference(text, text + "\n") is not None


def target(form, order, t):
    """F(t) as generate_coefficients.py defines it, by the tests' own reference."""
    value = ref.reference(-t, form, order)
    return -value if order == 0 else value


def exponent(form, t):
    """y(t), to be undone where a segment fits P = F*exp(y)."""
    t = mp.mpf(t)
    if form == "none":
        return t * t / 2
    return mp.mpf("1.702") * t if form == "quick" else 2 * mp.sqrt(2 / mp.pi) * (t + mp.mpf("0.044715") * t**3)


def fit_errors(rows, form, order, intervals, plain, scale=1):
    """By segment: the largest relative error over eleven points. The first `plain` fit F, the others P/scale."""
    with mp.workprec(400):
        for segment, ((a, b), row) in enumerate(zip(intervals, rows, strict=True)):
            centre, *coefs = [mp.mpf(float.fromhex(c)) for c in row]
            worst = mp.mpf(0)
            for t in np.linspace(a, b, 11)[1:].tolist():
                u = t - centre
                if t > 600 or abs(u) < (b - a) / 50:  # at a root's own segment c0's rounding is not relative
                    continue
                got = mp.polyval(coefs[::-1], u)
                want = target(form, order, t)
                if segment >= plain:
                    want *= mp.exp(exponent(form, t)) / scale
                worst = max(worst, abs(got / want - 1))
            yield float(worst)


@pytest.mark.parametrize(("layout", "form", "order"), KEYS)
def test_measured_errors(layout, form, order):
    table, dtype = TABLES[layout][form, order], layout[:3]
    scale = F32_SCALE if dtype == "f32" else 1
    found = list(fit_errors(table["rows"], form, order, table["intervals"], table["plain"], scale))
    assert len(found) == len(table["errors"])
    for segment, (mine, stated) in enumerate(zip(found, table["errors"], strict=True)):
        assert mine <= 1.02 * stated + 2.0 ** -(60 if dtype == "f64" else 40), segment
    assert max(found) > 0.05 * max(table["errors"])  # no overstatement either


def test_a_worse_coefficient_is_seen():
    table = coefficients.F64_TABLES["none", 0]
    rows = [list(row) for row in table["rows"]]
    rows[3][2] = (float.fromhex(rows[3][2]) * (1 + 2.0**-30)).hex()
    found = list(fit_errors(rows[3:4], "none", 0, table["intervals"][3:4], 1))
    assert found[0] > 2 * table["errors"][3]


def test_exponential_f64():
    """1 - exp(-r), which the kernels multiply by; relative to exp(-r)."""
    table = coefficients.F64_EXP
    low, high = table["interval"]
    coefs = [mp.mpf(float.fromhex(c)) for c in table["coefs"]]
    with mp.workprec(200):
        points = np.linspace(low, high, 101).tolist()
        errors = [abs((mp.polyval(coefs[::-1], r) - 1) / mp.exp(-r) + 1) for r in points]
    assert float(max(errors)) <= 1.02 * table["error"]


def test_exponential_f32():
    """exp(r/2) - 1 and the eighths of a power of two, times the scale that was chosen to make them nearly floats."""
    table = coefficients.F32_EXP
    low, high = table["interval"]
    coefs = [mp.mpf(float.fromhex(c)) for c in table["coefs"]]
    with mp.workprec(200):
        points = np.linspace(low, high, 101).tolist()
        errors = [abs((mp.polyval(coefs[::-1], r) + 1) / mp.exp(mp.mpf(r) / 2) - 1) for r in points]
        eighths = [mp.mpf(float.fromhex(e)) / (F32_SCALE * mp.mpf(2) ** (mp.mpf(j) / 8)) - 1
                   for j, e in enumerate(table["table"])]  # fmt: skip
    assert float(max(errors)) <= 1.02 * table["error"]
    assert table["error"] < 2**-30
    assert len(eighths) == 8
    assert max(abs(float(e)) for e in eighths) < 2**-27


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_constants(dtype):
    """High and low parts add up to the constant, to twice the precision or nearly."""
    table = {k: mp.mpf(float.fromhex(v)) for k, v in getattr(coefficients, f"{dtype.upper()}_CONSTANTS").items()}
    digits = 24 if dtype == "f32" else 53
    with mp.workprec(200):
        times = 2 if dtype == "f32" else 1
        slope = times * 2 * mp.sqrt(2 / mp.pi)
        for name, value in (
            ("LN4" if dtype == "f32" else "LN2", times * mp.log(2)), ("TANH_SLOPE", slope),
            ("TANH_CUBIC", slope * mp.mpf("0.044715")), ("QUICK", times * mp.mpf("1.702")),
        ):  # fmt: skip
            assert abs(table[name + "_HI"] + table[name + "_LO"] - value) < value * mp.mpf(2) ** (12 - 2 * digits), name


# -- the tables for Numba ----------------------------------------------------------------------------------------------

def quotient(dtype, name, z):
    """What a table of coefficients.JIT fits at z, and the weight of an error, by the tests' own reference."""
    table = coefficients.JIT[dtype][name]
    if name in ("exp", "wide"):
        return (mp.exp(z) - 1 - z) / z**2, z**2 / mp.exp(z)
    number = {key: mp.mpf(float.fromhex(table[key])) for key in ("a", "c") if key in table}
    t = 4 * z / (1 - number["a"] * z) if name == "rise" else 1 / z - number["c"]
    p = [target("none", order, t) * mp.exp(t * t / 2) / 2 for order in (0, 1)]
    if name == "rise":
        return (p[0] / z - 1) / z, z**2 / p[0]
    value = p[0] * (t + number["c"]) / t if name == "mills" else p[1] / (t - ROOT)
    return value, 1 / abs(value)


with mp.workprec(300):
    ROOT = mp.findroot(lambda t: target("none", 1, t), mp.mpf("0.7518"))
JIT_TABLES = [(dtype, name) for dtype, parts in coefficients.JIT.items() for name in parts if name != "constants"]


def jit_error(dtype, name, coefs):
    table = coefficients.JIT[dtype][name]
    centre = mp.mpf(float.fromhex(table["centre"]))
    worst = mp.mpf(0)
    with mp.workprec(400):
        for z in np.linspace(*table["interval"], 202)[1:-1].tolist():
            value, weight = quotient(dtype, name, mp.mpf(z))
            worst = max(worst, abs(weight * (mp.polyval(coefs[::-1], mp.mpf(z) - centre) - value)))
    return float(worst)


@pytest.mark.parametrize(("dtype", "name"), JIT_TABLES)
def test_jit_measured_errors(dtype, name):
    table = coefficients.JIT[dtype][name]
    coefs = [mp.mpf(float.fromhex(c)) for c in table["coefs"]]
    assert 0.3 * table["error"] < jit_error(dtype, name, coefs) <= 1.05 * table["error"]
    assert table["error"] < (2.0**-32 if name == "wide" else 2.0**-26 if dtype == "f32" else 2.0**-55)
    coefs[1] *= 1 + mp.mpf(2) ** -20
    assert jit_error(dtype, name, coefs) > 2 * table["error"]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_jit_constants(dtype):
    table = {k: mp.mpf(float.fromhex(v)) for k, v in coefficients.JIT[dtype]["constants"].items()}
    digits = 24 if dtype == "f32" else 53
    with mp.workprec(300):
        for name, value in (("ROOT", ROOT), ("DENSITY", 1 / mp.sqrt(2 * mp.pi) / 2)):
            assert abs(table[name + "_HI"] + table[name + "_LO"] - value) < value * mp.mpf(2) ** (-2 * digits), name


# -- the tables for CUDA -----------------------------------------------------------------------------------------------

def short_error(table, coefs):
    worst = mp.mpf(0)
    with mp.workprec(200):
        for t in np.linspace(*table["interval"], 202)[1:].tolist():
            exact = mp.log(mp.ncdf(-mp.mpf(t)), 2)
            worst = max(worst, abs(mp.mpf(t) * mp.polyval(coefs[::-1], mp.mpf(t)) - 1 - exact))
    return float(worst)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_cuda_measured_errors(dtype):
    table = coefficients.CUDA_SHORT[dtype]
    coefs = [mp.mpf(float.fromhex(c)) for c in table["coefs"]]
    assert 0.3 * table["error"] < short_error(table, coefs) <= 1.05 * table["error"]
    assert table["error"] < {"float16": 2.0**-24, "bfloat16": 2.0**-15}[dtype]
    coefs[1] *= 1 + mp.mpf(2) ** -12
    assert short_error(table, coefs) > 2 * table["error"]
