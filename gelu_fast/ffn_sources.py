"""The weights and the formula of a feed-forward block in a PyTorch module or a Keras model.

Neither library is imported here: whoever passes a module has imported it. An activation is known by its values, not by
its name: every library, and every release, has its own names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .api import gelu
from .forms import FORMS

# Exact and tanh differ by up to 4.7e-4, quick by more; float32 computes any of them to 1e-6.
_SAME = 2e-5
_GRID = np.linspace(-6, 6, 121, dtype=np.float32)


def from_torch(module: Any) -> dict[str, Any]:
    """The arguments of `FeedForward` for a module; see `FeedForward.from_torch`."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise ValueError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    first, activation, second = _torch_parts(module, torch.nn)

    def run(x: np.ndarray[Any, Any]) -> Any:
        with torch.no_grad():
            return activation(torch.from_numpy(x)).detach().cpu().numpy()

    name = type(activation).__name__
    w1, b1 = _torch_weights(first, torch)
    w2, b2 = _torch_weights(second, torch)
    return {"w1": w1, "b1": b1, "w2": w2, "b2": b2, "approximate": _formula(run, f"module: {name}")}


def _torch_parts(module: Any, nn: Any) -> tuple[Any, Any, Any]:
    """(first dense layer, activation, second dense layer)"""
    children = dict(module.named_children())
    if {"intermediate", "output"} <= children.keys() and hasattr(children["intermediate"], "dense"):
        inner = children["intermediate"]  # BERT, ViT and their kin; the residual and LayerNorm are in `output`
        parts = inner.dense, getattr(inner, "intermediate_act_fn", None), getattr(children["output"], "dense", None)
        if all(callable(p) for p in parts):
            return parts
    kept = {name: c for name, c in children.items() if not isinstance(c, nn.Dropout | nn.Identity)}
    dense = {name: c for name, c in kept.items() if _is_dense(c, nn)}
    others = [c for name, c in kept.items() if name not in dense]
    if len(dense) == 2 and len(others) == 1 and not list(others[0].parameters()):
        for pair in (("fc1", "fc2"), ("c_fc", "c_proj"), tuple(dense)):  # by name where the name tells the order
            if set(pair) == dense.keys():
                return dense[pair[0]], others[0], dense[pair[1]]
    got = ", ".join(f"{name}={type(c).__name__}" for name, c in children.items()) or "no children"
    raise ValueError(f"module: expected two dense layers and a GELU between them; {type(module).__name__} has {got}")


def _is_dense(layer: Any, nn: Any) -> bool:
    return isinstance(layer, nn.Linear) or (type(layer).__name__ == "Conv1D" and getattr(layer.weight, "ndim", 0) == 2)


def _torch_weights(layer: Any, torch: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    def array(tensor: Any) -> Any:
        tensor = tensor.detach().cpu()
        return (tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()).numpy().copy()

    weight = array(layer.weight)
    return weight.T if isinstance(layer, torch.nn.Linear) else weight, None if layer.bias is None else array(layer.bias)


def from_keras(model: Any) -> dict[str, Any]:
    """The arguments of `FeedForward` for a model or layers; see `FeedForward.from_keras`."""
    keras: Any = sys.modules.get("keras")
    if keras is None:
        raise ValueError(f"model: expected a keras.Model or a sequence of layers, got {type(model).__name__}")
    layers = list(getattr(model, "layers", None) or (model if isinstance(model, list | tuple) else []))
    idle = (keras.layers.InputLayer, keras.layers.Dropout, keras.layers.Identity)
    kept = [layer for layer in layers if not isinstance(layer, idle)]
    dense = [layer for layer in kept if isinstance(layer, keras.layers.Dense)]
    between = [layer for layer in kept if layer not in dense]
    names = ", ".join(type(layer).__name__ for layer in layers) or type(model).__name__
    expected = f"model: expected Dense, a GELU in it or after it, Dense; got {names}"
    if len(dense) != 2 or kept[0] is not dense[0] or kept[-1] is not dense[1] or len(between) > 1:
        raise ValueError(expected)
    linear = keras.activations.linear
    if dense[1].activation is not linear or bool(between) != (dense[0].activation is linear):
        raise ValueError(f"{expected}, whose activations are not those of such a block")
    activation = between[0] if between else dense[0].activation
    ops = keras.ops

    def run(x: np.ndarray[Any, Any]) -> Any:
        return ops.convert_to_numpy(activation(ops.convert_to_tensor(x)))

    def array(variable: Any) -> Any:
        found = np.array(ops.convert_to_numpy(variable))
        return found if found.dtype in (np.float32, np.float64) else found.astype(np.float32)

    label = getattr(activation, "name", None) or activation.__name__
    out: dict[str, Any] = {"approximate": _formula(run, f"model: {label}")}
    for k, layer in enumerate(dense, 1):
        out[f"w{k}"], out[f"b{k}"] = array(layer.kernel), array(layer.bias) if layer.use_bias else None
    return out


def which_form(run: Callable[[np.ndarray[Any, Any]], Any]) -> str | None:
    """Which form `run` computes, judged by its values for float32 numbers from -6 to 6; None if none."""
    values = np.asarray(run(_GRID), np.float64)
    if values.shape == _GRID.shape:
        for form in FORMS:
            if np.abs(values - gelu(_GRID.astype(np.float64), form)).max() < _SAME:
                return form
    return None


def _formula(run: Callable[[np.ndarray[Any, Any]], Any], label: str) -> str:
    try:
        form = which_form(run)
    except Exception as error:  # whatever another library's activation raises
        raise ValueError(f"{label} failed on {_GRID.size} numbers from -6 to 6: {error}") from error
    if form is None:
        raise ValueError(f"{label} is no GELU: it computes none of the exact, the tanh and the quick form")
    return form
