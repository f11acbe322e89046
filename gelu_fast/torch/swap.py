"""Every GELU of a model replaced by ours with the same formula; nothing happens unless asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import gelu_fast

from .modules import GELU

_GRID = np.linspace(-6, 6, 121, dtype=np.float32)
_SAME = 2e-5  # the forms differ by 4.7e-4 and more


@dataclass(frozen=True)
class Replaced:
    """One replacement.

    Attributes
    ----------
    name : str
        Where: the module's name in the model, or the attribute's.
    old, new : object
        What stood there, and the `GELU` that does now.
    approximate : str
    """

    name: str
    old: Any
    new: GELU
    approximate: str
    owner: Any
    attribute: str


class Swap(list[Replaced]):
    """What `swap_gelu` replaced; `undo` puts it all back."""

    def undo(self) -> None:
        """Put back what was replaced."""
        for r in reversed(self):
            _put(r.owner, r.attribute, r.old)
        self.clear()


def swap_gelu(model: torch.nn.Module) -> Swap:
    """Replace every GELU of a model by `GELU` with the same formula.

    Found are ``torch.nn.GELU``, the activation modules of Hugging Face (``GELUActivation``, ``NewGELUActivation``,
    ``FastGELUActivation``, ``PytorchGELUTanh``, ``QuickGELUActivation``, …: whatever has no parameters, is named so and
    computes one of the three forms), and functions such as ``torch.nn.functional.gelu`` held in a module's attribute
    (timm's and Hugging Face's ``act``, ``activation_fn``, ``intermediate_act_fn``). The formula is judged by values.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place.

    Returns
    -------
    Swap
        A list of what was replaced, with ``undo()``.

    Raises
    ------
    TypeError
        If `model` is no module.

    Notes
    -----
    A call of ``torch.nn.functional.gelu`` written out in a ``forward`` is not seen.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    swap = Swap()
    made: dict[int, GELU] = {}
    for prefix, owner, attribute, old in list(_candidates(model)):
        form = _formula(old)
        if form is None:
            continue
        new = made.setdefault(id(old), GELU(form).train(getattr(old, "training", owner.training)))
        name = f"{prefix}.{attribute}" if prefix else attribute
        swap.append(Replaced(name, old, new, form, owner, attribute))
        _put(owner, attribute, new)
    return swap


def _candidates(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, str, Any]]:
    for prefix, owner in model.named_modules():
        for attribute, child in owner._modules.items():
            if child is not None and "gelu" in type(child).__name__.lower() and not isinstance(child, GELU):
                if not any(True for _ in child.parameters()):
                    yield prefix, owner, attribute, child
        for attribute, value in vars(owner).items():
            if attribute.startswith("_") or isinstance(value, torch.nn.Module) or not callable(value):
                continue
            if "gelu" in getattr(value, "__name__", type(value).__name__).lower():
                yield prefix, owner, attribute, value


def _formula(activation: Any) -> str | None:
    """Which form it computes, or None."""
    try:
        with torch.no_grad():
            values = activation(torch.from_numpy(_GRID)).double().numpy()
    except Exception:  # whatever a user's function raises: then it is none of ours
        return None
    if values.shape == _GRID.shape:
        for form in gelu_fast.forms.FORMS:
            if np.abs(values - gelu_fast.gelu(_GRID.astype(np.float64), form)).max() < _SAME:
                return form
    return None


def _put(owner: torch.nn.Module, attribute: str, value: Any) -> None:
    if isinstance(value, torch.nn.Module) or attribute not in owner._modules:
        vars(owner).pop(attribute, None)  # a function there would hide the module
        owner._modules.pop(attribute, None) if not isinstance(value, torch.nn.Module) else None
        setattr(owner, attribute, value)
    else:
        del owner._modules[attribute]
        setattr(owner, attribute, value)
