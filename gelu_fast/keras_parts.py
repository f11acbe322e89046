"""Where the feed-forward blocks in a Keras 3 model are, on any backend, and proof that it computes them and no more.

Keras is never imported here: whoever passes a model has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .ffn_sources import formula_of, tensor_array

EXPECTED = "expected Dense, a GELU in it or after it, Dense"
_ROWS = 5
_ROUNDINGS = 16


@dataclass(frozen=True)
class Parts:
    """One block: its two Dense layers and the activation between them, a layer or a function."""

    first: Any
    activation: Any
    second: Any

    def formula(self, label: str) -> str:
        """The form that the activation computes; ValueError if none. keras.activations.gelu is exact by default."""
        keras: Any = sys.modules["keras"]

        def run(x: np.ndarray[Any, Any]) -> Any:
            return _numpy(self.activation(keras.ops.convert_to_tensor(x)))

        name = getattr(self.activation, "name", None) or getattr(self.activation, "__name__", "the activation")
        return formula_of(run, f"{label}: {name}")

    @property
    def labels(self) -> dict[str, str]:
        """What Keras calls each tensor."""
        return {
            f"{kind}{k}": f"{layer.name}.{name}"
            for k, layer in enumerate((self.first, self.second), 1)
            for kind, name in (("w", "kernel"), ("b", "bias"))
        }

    def weights(self, label: str) -> dict[str, Any]:
        """``w1 b1 w2 b2`` as arrays of the variables' dtype, weights (in, out)."""
        out: dict[str, Any] = {}
        for k, layer in enumerate((self.first, self.second), 1):
            if not layer.built:
                raise ValueError(f"{label}: layer {layer.name!r} has no weights yet: give the model an Input")
            out[f"w{k}"], out[f"b{k}"] = _numpy(layer.kernel), _numpy(layer.bias) if layer.use_bias else None
        return out

    def __call__(self, x: Any) -> Any:
        """The block in Keras's own operations, from the weights alone."""
        ops: Any = sys.modules["keras"].ops
        for layer, after in ((self.first, self.activation), (self.second, None)):
            x = ops.matmul(x, ops.cast(layer.kernel, x.dtype))
            if layer.use_bias:
                x = ops.add(x, ops.cast(layer.bias, x.dtype))
            x = after(x) if after else x
        return x


def find_parts(model: Any, keras: Any, label: str) -> list[Parts]:
    """The blocks of a model or a sequence of layers; ValueError saying what was found if it is none."""
    layers = list(_leaves(model, keras))
    idle = (keras.layers.InputLayer, keras.layers.Dropout, keras.layers.Identity)
    kept = [layer for layer in layers if not isinstance(layer, idle)]
    found: list[Parts] = []
    while kept:
        count, parts = _first_block(kept, keras)
        if parts is None:
            break
        found.append(parts)
        kept = kept[count:]
    if kept or not found:
        names = ", ".join(f"{type(layer).__name__}{_said(layer, keras)}" for layer in layers) or type(model).__name__
        raise ValueError(f"{label}: {EXPECTED}, any number of times; got {names}")
    return found


def _leaves(model: Any, keras: Any) -> Iterator[Any]:
    inner = model if isinstance(model, list | tuple) else getattr(model, "layers", None)
    if inner is not None:
        for layer in inner:
            yield from _leaves(layer, keras)
    elif isinstance(model, keras.layers.Layer) and not isinstance(model, keras.Model):
        yield model


def _first_block(layers: list[Any], keras: Any) -> tuple[int, Parts | None]:
    """How many layers the block at the beginning takes, and the block."""
    dense, linear = keras.layers.Dense, keras.activations.linear
    if not isinstance(layers[0], dense):
        return 0, None
    count = 2 if layers[0].activation is not linear else 3
    taken = layers[:count]
    second = taken[-1]
    if len(taken) < count or not isinstance(second, dense) or second.activation is not linear:
        return 0, None
    between = layers[0].activation if count == 2 else taken[1]
    if isinstance(between, dense) or getattr(between, "weights", None):
        return 0, None
    return count, Parts(layers[0], between, second)


def _said(layer: Any, keras: Any) -> str:
    activation = getattr(layer, "activation", None)
    if activation is None or activation is keras.activations.linear:
        return ""
    return f"({getattr(activation, '__name__', None) or getattr(activation, 'name', activation)})"


def check_model(model: Any, parts: list[Parts], keras: Any, label: str) -> None:
    """Run a model beside its weights; ValueError if its graph is another. A list of layers has no graph."""
    if not isinstance(model, keras.Model):
        return
    width = parts[0].first.kernel.shape[0]
    shape = getattr(model, "input_shape", None)  # a subclass of Model may have none
    inner = [length or 2 for length in shape[1:-1]] if isinstance(shape, tuple) else []
    x = np.random.default_rng(0).standard_normal((_ROWS, *inner, width)).astype(np.float32)
    want = keras.ops.cast(keras.ops.convert_to_tensor(x), parts[0].first.compute_dtype)
    for part in parts:
        want = part(want)
    try:
        got = model(keras.ops.convert_to_tensor(x), training=False)
    except Exception as error:  # whatever a user's model raises
        raise ValueError(f"{label}: {model.name} failed on a {x.shape} input: {error}") from error
    y, exact = _numpy(got).astype(np.float64), _numpy(want).astype(np.float64)
    if y.shape != exact.shape:
        raise ValueError(f"{label}: {model.name} gave shape {y.shape}, its layers give {exact.shape}")
    with np.errstate(invalid="ignore"):
        off = np.abs(y - exact)
    allowed = _ROUNDINGS * _eps(want.dtype) * np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
    if not ((y == exact) | (np.isnan(y) & np.isnan(exact)) | (off <= allowed)).all():
        raise ValueError(
            f"{label}: {model.name} doesn't compute its Dense layers one after the other: it differs by up to "
            f"{np.nanmax(off):.3g}. A residual, a scale or another activation isn't part of such a block"
        )


def _eps(dtype: Any) -> float:
    name = str(dtype).rpartition(".")[2]
    return {"float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(name, 2.0**-23)


def _numpy(variable: Any) -> Any:
    """An array of its own, whatever the backend."""
    value = getattr(variable, "value", variable)
    # Not keras.ops.convert_to_numpy, which on the TensorFlow and the torch backend warns with NumPy 2.
    if hasattr(value, "detach"):
        return tensor_array(value).copy()
    return np.array(value.numpy() if hasattr(value, "numpy") else value)
