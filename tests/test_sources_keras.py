"""Keras 3 models on the TensorFlow and on the torch backend, each in a process of its own, which has one backend."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from blocks import run64

CASES = Path(__file__).with_name("keras_cases.py")
FORMS = {"tanh": "tanh", "quick": "quick", "ops.gelu": "tanh"}  # the others are exact, keras.activations' default
HIDDEN = {"article": [2048], "article, functional": [2048], "square": [6], "stack": [9, 7]}
NAMES = (
    "article", "article, functional", "sequential", "functional", "square", "ops.gelu", "activations.gelu", "tanh",
    "quick", "nested", "stack", "subclassed", "lora",
)  # fmt: skip


@pytest.fixture(scope="module", params=["tensorflow", "torch"])
def cases(request, tmp_path_factory):
    for package in ("keras", request.param):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: pip install keras tensorflow-cpu torch")
    folder = tmp_path_factory.mktemp(request.param)
    # Warnings are errors there too, from the moment that Keras and its backend are imported.
    environment = {**os.environ, "KERAS_BACKEND": request.param, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-W", "error", CASES, folder], env=environment, cwd=folder, capture_output=True, text=True,
        timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((folder / "cases.json").read_text())
    assert found["backend"] == request.param
    return SimpleNamespace(folder=folder, **found)


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_formula(cases, name):
    found, form = cases.served[name], FORMS.get(name, "none")
    assert found["formula"] == found.get("ff", form) == form
    assert found["hidden"] == HIDDEN.get(name, [9])
    assert found["as_list"]
    stored = dict(np.load(cases.folder / f"{name}.npz"))
    x, y = stored.pop("x"), stored.pop("y")
    prefixes = ["layers.0.", "layers.1."] if name == "stack" else [""]
    blocks = [tuple(stored.get(f"{p}{key}") for key in ("w1", "b1", "w2", "b2")) for p in prefixes]
    error = {f: np.abs(run64(x, blocks, f) - y).max() for f in ("none", "tanh", "quick")}
    assert found["dtype"] == ("float32" if name.startswith("article") else "float64")
    assert found["kernels_as_stored"]
    # Keras's own error: its float64 has 1e-7 in a product on torch and 5e-9 in gelu on TensorFlow.
    assert error[form] < 1e-5
    assert found.get("ff_difference", 0) < 1e-5
    assert 20 * error[form] < min(e for f, e in error.items() if f != form)


def test_every_case_was_run(cases):
    assert set(cases.served) == set(NAMES)
    assert set(cases.refused) == set(REFUSED)


EXPECTED = "expected Dense, a GELU in it or after it, Dense, any number of times; got"
REFUSED = {
    "relu": "relu is no GELU: it computes none of the exact, the tanh and the quick form",
    "no activation": f"{EXPECTED} Dense, Dense",
    "one layer": f"{EXPECTED} Dense(gelu)",
    "activation at the end": f"{EXPECTED} Dense(gelu), Dense(gelu)",
    "alternating": f"{EXPECTED} Dense(gelu), Dense, Activation(gelu), Dense",
    "norm": f"{EXPECTED} Dense(gelu), LayerNormalization, Dense",
    "unbuilt": "has no weights yet: give the model an Input",
    "residual": f"{EXPECTED} InputLayer, Dense(gelu), Dense, Add",
    "subclassed residual": "doesn't compute its Dense layers one after the other",
    "shared": "doesn't compute its Dense layers one after the other",
    "convolution": f"{EXPECTED} Conv1D",
    "lone layer": f"{EXPECTED} Dense(gelu)",
    "two in a row": None,
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(cases, name):
    if REFUSED[name] is None:
        assert cases.refused[name] == "no error"
        assert cases.ff_refused[name] == "ValueError: model: expected one feed-forward block, got 2 in a row"
        return
    for found, label in ((cases.refused[name], "source"), (cases.ff_refused[name], "model")):
        assert found.startswith(f"ValueError: {label}: ")
        assert REFUSED[name] in found


def test_dtypes_are_kept(cases):
    for dtype, found in cases.dtypes.items():
        stored = "float32" if dtype.startswith("mixed") else dtype  # the variables' own, not the one they compute in
        assert found == [stored, "none", "float64" if dtype == "float64" else "float32"]


def test_nonfinite_weights(cases):
    """Case 14."""
    assert cases.nan_allowed
    assert cases.nan.startswith("ValueError: dense")
    assert ".kernel: expected finite weights, got nan at (0, 0); 45 of 45 aren't finite" in cases.nan
