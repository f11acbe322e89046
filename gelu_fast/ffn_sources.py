"""The weights and the formula of a feed-forward block in a PyTorch module or a Keras model, for `FeedForward`.

Neither library is imported here: whoever passes a module has imported it. An activation is known by its values, not by
its name: every library, and every release, has its own names. What a block looks like in each library stands in
`torch_parts` and `keras_parts`, which `gelu_fast.export` reads its sources with too.
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
    from .torch_parts import check_claims, dense_weights, find_parts, is_bert_pair

    torch: Any = sys.modules.get("torch")
    if torch is None or not (isinstance(module, torch.nn.Module) or is_bert_pair(module, torch)):
        raise ValueError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    found = find_parts(module, torch, "module")
    if len(found.parts) != 1:
        raise ValueError(f"module: expected one feed-forward block, got {len(found.parts)} in a row")

    parts = found.parts[0]
    arguments: dict[str, Any] = {"approximate": parts.formula("module")}
    for k, layer in enumerate((parts.first, parts.second), 1):
        weight, bias, transposed = dense_weights(layer, torch)
        w = _wide(tensor_array(weight)).copy()
        arguments[f"w{k}"], arguments[f"b{k}"] = w.T if transposed else w, None
        if bias is not None:
            arguments[f"b{k}"] = _wide(tensor_array(bias)).copy()
    check_claims(found, torch, "module")
    return arguments


def from_keras(model: Any) -> dict[str, Any]:
    """The arguments of `FeedForward` for a model or layers; see `FeedForward.from_keras`."""
    from .keras_parts import check_model, find_parts

    keras: Any = sys.modules.get("keras")
    if keras is None:
        raise ValueError(f"model: expected a keras.Model or a sequence of layers, got {type(model).__name__}")
    found = find_parts(model, keras, "model")
    if len(found) != 1:
        raise ValueError(f"model: expected one feed-forward block, got {len(found)} in a row")

    arguments = {name: a if a is None else _wide(a) for name, a in found[0].weights("model").items()}
    check_model(model, found, keras, "model")
    return {"approximate": found[0].formula("model"), **arguments}


def tensor_array(tensor: Any) -> np.ndarray[Any, Any]:
    """A torch.Tensor's values, sharing its memory where it can; bfloat16 needs ml_dtypes, or becomes float32."""
    tensor = tensor.detach().cpu()
    if tensor.dtype is not sys.modules["torch"].bfloat16:
        return np.asarray(tensor.numpy())
    try:
        import ml_dtypes
    except ImportError:  # NumPy alone has no such dtype; float32 holds every value
        return np.asarray(tensor.float().numpy())
    return np.asarray(tensor.contiguous().view(sys.modules["torch"].int16).numpy().view(ml_dtypes.bfloat16))


def _wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """FeedForward takes float32 and float64."""
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def which_form(run: Callable[[np.ndarray[Any, Any]], Any]) -> str | None:
    """Which form `run` computes, judged by its values for float32 numbers from -6 to 6; None if none."""
    values = np.asarray(run(_GRID), np.float64)
    if values.shape == _GRID.shape:
        for form in FORMS:
            if np.abs(values - gelu(_GRID.astype(np.float64), form)).max() < _SAME:
                return form
    return None


def formula_of(run: Callable[[np.ndarray[Any, Any]], Any], label: str) -> str:
    """As `which_form`; ValueError beginning with `label` if it is none, or if `run` fails."""
    try:
        form = which_form(run)
    except Exception as error:  # whatever another library's activation raises
        raise ValueError(f"{label} failed on {_GRID.size} numbers from -6 to 6: {error}") from error
    if form is None:
        raise ValueError(f"{label} is no GELU: it computes none of the exact, the tanh and the quick form")
    return form
