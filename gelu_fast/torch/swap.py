"""Every GELU of a model replaced by ours with the same formula; nothing happens unless asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..ffn_sources import which_form
from .modules import GELU


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
    ValueError
        If `model` is a GELU itself, which can't be replaced inside itself.

    Notes
    -----
    A call of ``torch.nn.functional.gelu`` written out in a ``forward`` is not seen.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if (form := _of(model)) is not None:
        raise ValueError(f"model: is itself a GELU, expected one holding some; ours is gelu_fast.torch.GELU({form!r})")
    swap = Swap()
    made: dict[int, GELU] = {}
    for prefix, owner, attribute, old, form in list(_found(model, "", set())):
        new = made.setdefault(id(old), GELU(form).train(getattr(old, "training", owner.training)))
        swap.append(Replaced(f"{prefix}{attribute}", old, new, form, owner, attribute))
        _put(owner, attribute, new)
    return swap


def _found(owner: torch.nn.Module, prefix: str, seen: set[int]) -> Iterator[tuple[str, torch.nn.Module, str, Any, str]]:
    """Every (prefix, owner, attribute, what stands there, form); not what stands inside one that is found."""
    if id(owner) in seen or isinstance(owner, GELU):
        return
    seen.add(id(owner))
    functions = {
        name: value for name, value in vars(owner).items()
        if not name.startswith("_") and not isinstance(value, torch.nn.Module) and callable(value)
    }  # fmt: skip
    for name, value in {**owner._modules, **functions}.items():
        if value is None:
            continue
        form = _of(value)
        if form is not None:
            yield prefix, owner, name, value, form
        elif isinstance(value, torch.nn.Module):
            yield from _found(value, f"{prefix}{name}.", seen)


def _of(value: Any) -> str | None:
    """The form of what is called a GELU, has no parameters, and isn't ours."""
    label = type(value).__name__ if isinstance(value, torch.nn.Module) else getattr(value, "__name__", "")
    named = "gelu" in label.lower() and not isinstance(value, GELU)
    learnt = isinstance(value, torch.nn.Module) and any(True for _ in value.parameters())
    return _formula(value) if named and not learnt else None


def _formula(activation: Any) -> str | None:
    """Which form it computes, or None."""
    try:
        with torch.no_grad():
            return which_form(lambda x: activation(torch.from_numpy(x)).double().numpy())
    except Exception:  # whatever a user's function raises: then it is none of ours
        return None


def _put(owner: torch.nn.Module, attribute: str, value: Any) -> None:
    if attribute in owner._modules and isinstance(value, torch.nn.Module):
        owner._modules[attribute] = value  # in its place: the order is the order of a Sequential
        return
    delattr(owner, attribute)  # a function would hide a module of its name, and a module refuses a function
    setattr(owner, attribute, value)
