"""gelu_fast.compare: the activations, what is said of them, their cost and their picture."""

import importlib
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from gelu_fast import pictures
from gelu_fast.bench import cells, plot, timing, work
from gelu_fast.bench.timing import Effort
from gelu_fast.compare import ACTIVATIONS, cost, picture, reference, styles, table
from gelu_fast.compare.properties import POINTS, properties

NAMES = list(ACTIVATIONS)
TORCH = {
    "GELU": lambda t, f: f.gelu(t), "GELU tanh": lambda t, f: f.gelu(t, approximate="tanh"),
    "GELU quick": lambda t, f: t * (1.702 * t).sigmoid(), "SiLU": lambda t, f: f.silu(t),
    "ReLU": lambda t, f: f.relu(t), "leaky ReLU": lambda t, f: f.leaky_relu(t),
    "sigmoid": lambda t, f: t.sigmoid(), "tanh": lambda t, f: t.tanh(),
}  # fmt: skip


def mutated(name, **changes):
    return replace(ACTIVATIONS[name], **changes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_as_torch_has_it(name, dtype):
    torch = pytest.importorskip("torch")
    x = np.linspace(-8, 8, 4001).astype(dtype)
    dy = np.random.default_rng(0).standard_normal(x.size).astype(dtype)
    t = torch.tensor(x, requires_grad=True)
    y = TORCH[name](t, torch.nn.functional)
    (dx,) = torch.autograd.grad(y, t, torch.tensor(dy))
    bound = 2e-6 if dtype is np.float32 else 1e-14
    activation = ACTIVATIONS[name]
    for computed, wanted in ((activation.forward(x), y), (activation.backward(dy, x), dx)):
        assert computed.dtype == dtype
        np.testing.assert_allclose(computed, wanted.detach().numpy(), rtol=bound, atol=bound)


@pytest.mark.parametrize("name", NAMES)
def test_out_is_what_is_returned_and_the_input_is_kept(name):
    x = np.linspace(-5, 5, 101, dtype=np.float32)
    dy, before, out = np.cos(x), x.copy(), np.full_like(x, np.nan)
    activation = ACTIVATIONS[name]
    assert activation.forward(x, out=out) is out
    np.testing.assert_array_equal(out, activation.forward(x))
    assert activation.backward(dy, x, out=out) is out
    np.testing.assert_array_equal(out, activation.backward(dy, x))
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(dy, np.cos(x))


@pytest.mark.parametrize("name", NAMES)
def test_reference_agrees_in_float64(name):
    activation = ACTIVATIONS[name]
    x = np.linspace(-6, 6, 501)
    error = reference.largest_error(
        activation, x, activation.forward(x), np.ones_like(x), activation.backward(np.ones_like(x), x)
    )
    assert error < 1e-9


# (range, smooth at 0, falls below), by hand: the published minima, and what a textbook says.
KNOWN = {
    "GELU": ("[−0.1700, ∞)", True, -0.7517915), "GELU tanh": ("[−0.1700, ∞)", True, -0.7524614),
    "GELU quick": ("[−0.1636, ∞)", True, -0.7511543), "SiLU": ("[−0.2785, ∞)", True, -1.2784645),
    "ReLU": ("[0, ∞)", False, None), "leaky ReLU": ("(−∞, ∞)", False, None),
    "sigmoid": ("(0, 1)", True, None), "tanh": ("(−1, 1)", True, None),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_properties(name):
    found = properties(ACTIVATIONS[name])
    row = dict(zip(*map(list, (table.shapes([ACTIVATIONS[name]], [found])[0],
                               table.shapes([ACTIVATIONS[name]], [found])[1][0])), strict=True))  # fmt: skip
    span, smooth, falls = KNOWN[name]
    assert row["range"] == span
    assert found.smooth is smooth
    assert row["monotone"].startswith("yes" if falls is None else "no")
    assert found.falls_below == (None if falls is None else pytest.approx(falls, abs=1e-6))
    assert found.zero_gradients == pytest.approx(0.5 if name == "ReLU" else 0, abs=2e-3)


def test_gradients():
    found = {name: properties(a) for name, a in ACTIVATIONS.items()}
    assert found["GELU"].gradients == pytest.approx([
        0.5 * math.erfc(-x / math.sqrt(2)) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) for x in POINTS
    ])  # fmt: skip
    assert found["ReLU"].gradients == (0, 0, 1)
    assert found["leaky ReLU"].gradients == (0.01, 0.01, 1)
    assert found["leaky ReLU"].slopes_at_zero == (0.01, 1)
    assert found["sigmoid"].steepest == pytest.approx(0.25)
    assert found["tanh"].steepest == pytest.approx(1)


def test_properties_follow_the_function():
    """Not a list of words: other functions get other properties."""
    cube = mutated("tanh", forward=lambda x: np.abs(x) ** 3, backward=lambda dy, x: dy * 3 * x * np.abs(x))
    found = properties(cube)
    assert not found.smooth  # its third derivative jumps from −6 to 6
    assert found.slopes_at_zero == (0, 0)
    assert (found.low, found.low_reached, found.high) == (0, True, math.inf)
    assert found.falls_below == pytest.approx(0, abs=1e-9)
    hump = mutated("tanh", forward=lambda x: np.cos(x), backward=lambda dy, x: -dy * np.sin(x))
    with pytest.raises(NotImplementedError, match="more than one place"):
        properties(hump)


def test_costs():
    found = cost.costs(effort=Effort(rounds=3, turn=1e-5, rest=0))
    assert len(found) == len(NAMES)
    relu = found[NAMES.index("ReLU")]
    assert (relu.forward_ratio, relu.backward_ratio) == (1, 1)
    for one in found:
        assert one.forward > 0
        assert one.backward > 0
        assert one.forward_ratio == one.forward / relu.forward
        assert 0 <= one.error <= reference.TOLERANCE


@pytest.mark.parametrize("what", ["forward", "backward"])
def test_a_wrong_answer_is_not_timed(what, monkeypatch):
    monkeypatch.setattr(cost, "compare", lambda *arguments: pytest.fail("timed"))
    wrong = mutated("GELU", **{what: getattr(ACTIVATIONS["GELU tanh"], what)})
    with pytest.raises(cost.WrongAnswerError, match=r"^GELU is wrong by [\d.]+e-0[34]"):
        cost.costs([ACTIVATIONS["ReLU"], wrong])


def test_nan_is_wrong():
    broken = mutated("GELU", forward=lambda x, out: np.multiply(x, np.nan, out=out))
    with pytest.raises(cost.WrongAnswerError, match="wrong by inf"):
        cost.costs([ACTIVATIONS["ReLU"], broken])


def test_picture_has_every_function_in_every_row_by_name():
    pytest.importorskip("matplotlib")
    figure = picture.draw()
    assert sorted(n for _, names in picture.FAMILIES for n in names) == sorted(set(NAMES) - {"GELU"})
    for row in range(3):
        panels = figure.axes[4 * row : 4 * row + 4]
        assert [panel.get_ylabel() for panel in panels] == [picture.ROWS[row], "", "", ""]
        for panel, (_, names) in zip(panels, picture.FAMILIES, strict=True):
            said = [text.get_text() for text in panel.texts]
            assert said == ([] if row == 2 else ["GELU"]) + list(names)


def test_picture_draws_the_functions():
    pytest.importorskip("matplotlib")
    panels = picture.draw().axes
    for column, (_, names) in enumerate(picture.FAMILIES):
        for row, what in enumerate(("forward", "derivative", "apart")):
            lines = [line for line in panels[4 * row + column].lines if line.get_marker() not in ("", "None", None)]
            assert len(lines) == len(names)
            for line, name in zip(lines, names, strict=True):
                x, y = line.get_data()
                for i in range(25, len(x), 200):
                    exact = reference.value(ACTIVATIONS[name], x[i])
                    if what == "derivative":
                        exact = reference.slope(ACTIVATIONS[name], x[i])
                    elif what == "apart":
                        exact = abs(exact - reference.value(ACTIVATIONS["GELU"], x[i]))
                    if not (what == "apart" and exact < 1e-5):
                        assert y[i] == pytest.approx(exact, rel=1e-6, abs=1e-9)


def test_styles_differ_without_colour():
    assert list(styles.STYLES) == NAMES
    assert len({style.marker for style in styles.STYLES.values()}) == len(NAMES)
    assert len({str(style.dashes) for style in styles.STYLES.values()}) == len(NAMES)


def luminance(colour):
    parts = importlib.import_module("matplotlib.colors").to_rgb(colour)
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_line_stands_out_from_white_and_from_the_band():
    pytest.importorskip("matplotlib")
    band = luminance(picture.BAND["color"])
    for style in styles.STYLES.values():
        assert 1.05 / (luminance(style.colour) + 0.05) >= 3  # WCAG's contrast for graphics
        assert (band + 0.05) / (luminance(style.colour) + 0.05) >= 1.6


def test_imports_numpy_alone():
    code = (
        "import sys, gelu_fast.compare.cost, gelu_fast.compare.picture, gelu_fast.compare.training;"
        "import gelu_fast.compare.curves, gelu_fast.compare.table, gelu_fast.pictures;"
        "print(sorted({'matplotlib', 'sklearn', 'rich', 'typer', 'torch', 'scipy', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-Pc", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_bench_picture_names_every_line_in_every_panel():
    pytest.importorskip("matplotlib")
    names = ("gelu_fast", "copy", *(f"peer {i}" for i in range(9)))
    sweep = []
    for one in (work.EXACT, work.Work("none", backward=True)):
        for threads in (1, 2):
            for size in (256, 4096):
                rows = [cells.Row(name, None, timing.summary([(i + 1) * size] * 3, 1)) for i, name in enumerate(names)]
                sweep.append(cells.Cell(one, work.Column(size, threads), "N(0,1)", rows))
    text = pictures.render(plot.draw(sweep, "a machine"), "svg").decode()
    assert [text.count(f">{name}</text>") for name in names] == [4] * len(names)
    looks = plot._styles(names).values()
    assert len({look.marker for look in looks}) == len(names)
    assert pictures.render(plot.draw(sweep, "a machine"), "svg").decode() == text


def test_accuracy_pictures_are_refused_before_one_is_computed(tmp_path, monkeypatch):
    plots = pytest.importorskip("gelu_fast.accuracy.plots")
    monkeypatch.setattr(plots, "oracle", lambda *arguments: pytest.fail("computed"))
    (tmp_path / "error-gelu_quick.svg").touch()
    with pytest.raises(FileExistsError, match=r"--plot: .*error-gelu_quick\.svg exists already; --overwrite"):
        plots.draw_all(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"--plot: .*file is a file, expected a folder"):
        plots.draw_all(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match=r"--plot: the folder .*new doesn't exist"):
        plots.draw_all(tmp_path / "new/folder")
