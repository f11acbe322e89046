"""gelu_fast.compare: the classifier, its training, the curves."""

import numpy as np
import pytest

from gelu_fast.compare import ACTIVATIONS, curves, network, table, training

NAMES = list(ACTIVATIONS)
SMALL = training.Digits(
    *(np.random.default_rng(0).random((n, 64), np.float32) if k == 0 else np.arange(n) % 10
      for n in (128, 72) for k in (0, 1))
)  # fmt: skip


@pytest.fixture(scope="module")
def data():
    pytest.importorskip("sklearn")
    return training.digits()


def test_digits_are_split_once(data):
    assert len(data.labels) + len(data.test_labels) == 1797
    assert data.x.dtype == np.float32
    assert (data.x.min(), data.x.max()) == (0, 1)
    rows = {row.tobytes() for row in data.x}
    assert not rows & {row.tobytes() for row in data.test_x}


@pytest.mark.parametrize("part", ["all", "biases"])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_by_differences(name, depth, part):
    """Along the slope's own direction the loss changes as the slope says."""
    made = network.Classifier(ACTIVATIONS[name], depth, 64, 10, seed=3)
    values = made._values.copy()
    made.step(SMALL.x, SMALL.labels)
    slopes = made._slopes.astype(np.float64)
    if part == "biases":
        only = np.zeros_like(made._slopes)
        for _, bias in network._views(only, [w.shape for w, _ in made._layers]):
            bias[...] = 1
        slopes *= only
    size = np.sqrt((slopes**2).sum())
    direction, step = (slopes / size).astype(np.float32), 5e-3 if part == "all" else 2e-2

    def loss(step):
        made._values[...] = values + np.float32(step) * direction
        scores = made._forward(SMALL.x)[1][-1]
        return network._cross_entropy(scores.astype(np.float64), SMALL.labels)[0]

    assert (loss(step) - loss(-step)) / (2 * step) == pytest.approx(size, rel=0.02)


def test_steps_are_torchs():
    """The same weights, batches and Adam in PyTorch give the same losses."""
    torch = pytest.importorskip("torch")
    made = network.Classifier(ACTIVATIONS["GELU"], 2, 64, 10, seed=0)
    layers = [torch.nn.Linear(*w.shape) for w, _ in made._layers]
    with torch.no_grad():
        for layer, (weights, bias) in zip(layers, made._layers, strict=True):
            layer.weight.copy_(torch.tensor(weights.T))
            layer.bias.copy_(torch.tensor(bias))
    model = torch.nn.Sequential(layers[0], torch.nn.GELU(), layers[1], torch.nn.GELU(), layers[2])
    adam = torch.optim.Adam(model.parameters(), lr=network.RATE)
    x, labels = torch.tensor(SMALL.x), torch.tensor(SMALL.labels)
    for _ in range(30):
        adam.zero_grad()
        wanted = torch.nn.functional.cross_entropy(model(x), labels)
        wanted.backward()
        adam.step()
        assert made.step(SMALL.x, SMALL.labels) == pytest.approx(wanted.item(), rel=2e-4)


def test_accuracy_counts_every_digit():
    made = network.Classifier(ACTIVATIONS["ReLU"], 2, 64, 10, seed=0)
    scores = made._forward(SMALL.x)[1][-1]  # 128 rows at once; pieces of 64 must count the same
    for n in (1, 64, 72, 128):
        wanted = np.mean(scores[:n].argmax(axis=1) == SMALL.labels[:n])
        assert made.accuracy(SMALL.x[:n], SMALL.labels[:n]) == pytest.approx(wanted)


def test_the_same_seed_gives_the_same_numbers():
    first, again, other = (training.train(ACTIVATIONS["GELU"], 2, seed, SMALL, 3) for seed in (0, 0, 1))
    assert first == again
    assert first.losses != other.losses
    assert len(first.losses) == len(first.accuracies) == 3


def test_all_activations_start_from_the_same_weights():
    made = [network.Classifier(a, 12, 64, 10, seed=5)._values for a in ACTIVATIONS.values()]
    for values in made[1:]:
        np.testing.assert_array_equal(values, made[0])


def test_learns(data):
    run = training.train(ACTIVATIONS["GELU"], 2, 0, data, 10)
    assert run.accuracies[-1] > 0.93
    assert run.losses[-1] < 0.1 * run.losses[0]


def test_train_all(data):
    seen = []
    some = [ACTIVATIONS["GELU"], ACTIVATIONS["ReLU"]]
    runs = training.train_all(1, 2, (1, 2), some, lambda a, depth, seed: seen.append((depth, a.name, seed)))
    assert seen == [(d, n, s) for d in (1, 2) for n in ("GELU", "ReLU") for s in (0, 1)]
    assert [(run.depth, run.activation, run.seed) for run in runs] == seen


def runs_of(names, losses, depth=2):
    return [training.Run(name, depth, seed, [v * (1 + seed) for v in losses], [0.5, 0.75, 1.0])
            for name in names for seed in (0, 1)]  # fmt: skip


def test_table_of_trainings():
    heads, rows = table.trainings(runs_of(["GELU", "tanh"], [2.0, 1.0, float("nan")]))
    assert len(rows) == 2
    row = dict(zip(heads, rows[0], strict=True))
    assert row["loss by epoch"] == "█▅×"
    assert row["right on test digits"] == "100.0%"


def test_curves():
    pytest.importorskip("matplotlib")
    figure = curves.draw(runs_of(NAMES, [2.0, 0.5, 0.25], 2) + runs_of(NAMES, [2.0, 1.0, 0.0], 12))
    panels = [panel for panel in figure.axes if panel.get_visible()]
    assert len(panels) == 16
    assert [panel.get_title(loc="left") for panel in panels[:4]] == [title for title, _ in curves.FAMILIES]
    for number, panel in enumerate(panels):
        assert sorted(t.get_text() for t in panel.texts) == sorted(("GELU", *curves.FAMILIES[number % 4][1]))
    # Seeds 0 and 1 had 0.25 and 0.5 at the end: their geometric mean, where the label's thread begins too.
    assert panels[0].lines[0].get_ydata()[-1] == pytest.approx(np.sqrt(0.25 * 0.5))
    assert panels[4].lines[0].get_ydata()[-1] == pytest.approx(1e-4)  # no loss at all has no place on the axis
    assert "2 seeds" in figure._suptitle.get_text()


@pytest.mark.parametrize("losses", [[2.0], [float("nan")] * 3, [2.0, float("inf"), float("nan")]])
def test_curves_of_little_or_nothing(losses):
    pytest.importorskip("matplotlib")
    from gelu_fast.pictures import render

    runs = [training.Run("ReLU", 2, 0, losses, [0.1] * len(losses))]
    assert b"<svg" in render(curves.draw(runs), "svg")
