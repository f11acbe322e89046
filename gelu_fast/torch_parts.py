"""Where the feed-forward blocks in a PyTorch module are, and proof that it computes them and nothing more.

PyTorch is never imported here: whoever passes a module has imported it.

A module's children say what it is made of, not what its ``forward`` does with them: a residual or a scale is invisible.
So every module whose meaning is taken from its children is a claim, and is run beside its parts.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .ffn_sources import formula_of

EXPECTED = "expected two dense layers and a GELU between them"
_NAMED = (("fc1", "fc2"), ("c_fc", "c_proj"))  # the order that names tell, however they are registered
_ROWS = 5
# A module and its parts run the same kernels on the same numbers; fused ones may round elsewhere.
_ROUNDINGS = 16


@dataclass(frozen=True)
class Parts:
    """One block: its two dense layers, what stands between them, and what the source calls the layers."""

    first: Any
    activation: Callable[[Any], Any]
    second: Any
    names: tuple[str, str]

    def __call__(self, x: Any) -> Any:
        return self.second(self.activation(self.first(x)))

    def formula(self, label: str) -> str:
        """The form that the activation computes; ValueError if none."""
        torch: Any = sys.modules["torch"]

        def run(x: np.ndarray[Any, Any]) -> Any:
            with torch.no_grad():
                return self.activation(torch.from_numpy(x)).detach().cpu().numpy()

        name = getattr(self.activation, "__name__", None) or type(self.activation).__name__
        return formula_of(run, f"{label}: {name}")


@dataclass(frozen=True)
class Found:
    """The blocks in a row, and pairs (module, what it must be equal to) that `check_claims` runs."""

    parts: list[Parts] = field(default_factory=list)
    claims: list[tuple[Any, Callable[[Any], Any], Any]] = field(default_factory=list)


def is_dense(layer: Any, torch: Any) -> bool:
    """Whether it is an nn.Linear or a Hugging Face Conv1D, which stores (in, out)."""
    return isinstance(layer, torch.nn.Linear) or (
        type(layer).__name__ == "Conv1D" and getattr(getattr(layer, "weight", None), "ndim", 0) == 2
    )


def dense_weights(layer: Any, torch: Any) -> tuple[Any, Any, bool]:
    """(weight, bias or None, whether the weight is (out, in))"""
    return layer.weight, layer.bias, isinstance(layer, torch.nn.Linear)


def is_bert_pair(source: Any, torch: Any) -> bool:
    """Whether it is (BertIntermediate, BertOutput) or their kin: ``dense`` and an activation, then ``dense``."""
    return (
        isinstance(source, tuple | list)
        and len(source) == 2
        and all(isinstance(part, torch.nn.Module) for part in source)
        and all(is_dense(getattr(part, "dense", None), torch) for part in source)
        and callable(getattr(source[0], "intermediate_act_fn", None))
    )


def find_parts(source: Any, torch: Any, label: str) -> Found:
    """The blocks of a module or of a BERT pair; ValueError saying what was found if it is none."""
    if is_bert_pair(source, torch):
        return _bert(*source, "0.", "1.")
    return _find(source, torch, label, "")


def _find(module: Any, torch: Any, label: str, prefix: str) -> Found:
    nn = torch.nn
    children = dict(module.named_children())
    pair = children.get("intermediate"), children.get("output")
    if is_bert_pair(pair, torch):  # a BERT layer: attention, LayerNorm and the residual stay outside
        return _bert(*pair, f"{prefix}intermediate.", f"{prefix}output.")
    if isinstance(module, nn.ModuleList) and children:
        found = Found()
        for name, child in children.items():
            one = _find(child, torch, label, f"{prefix}{name}.")
            found.parts.extend(one.parts)
            found.claims.extend(one.claims)
        return found
    if isinstance(module, nn.Sequential):
        found = _in_order(module, torch, label, prefix)
    else:
        kept = {name: child for name, child in children.items() if not _is_idle(child, nn)}
        if len(kept) == 1 and not any(is_dense(child, torch) for child in kept.values()):
            ((name, child),) = kept.items()  # a wrapper, such as self.net = nn.Sequential(...)
            found = _find(child, torch, label, f"{prefix}{name}.")
        else:
            found = Found([_by_name(module, kept, torch, label, prefix)])
    if type(module).forward is not nn.Sequential.forward:  # of a Sequential there is nothing to prove
        found.claims.append((module, _compose(found.parts), found.parts[0].first))
    return found


def _bert(intermediate: Any, output: Any, *prefixes: str) -> Found:
    parts = Parts(
        intermediate.dense, intermediate.intermediate_act_fn, output.dense,
        (f"{prefixes[0]}dense", f"{prefixes[1]}dense"),
    )  # fmt: skip
    return Found([parts], [(intermediate, lambda x: parts.activation(parts.first(x)), parts.first)])


def _by_name(module: Any, kept: dict[str, Any], torch: Any, label: str, prefix: str) -> Parts:
    dense = {name: child for name, child in kept.items() if is_dense(child, torch)}
    others = [child for name, child in kept.items() if name not in dense]
    if len(dense) == 2 and len(others) <= 1 and not any(_has_state(child) for child in others):
        for pair in (*_NAMED, tuple(dense)):
            if set(pair) == dense.keys():
                first, second = dense[pair[0]], dense[pair[1]]
                between = others[0] if others else Between(module, first, second, torch)
                return Parts(first, between, second, (f"{prefix}{pair[0]}", f"{prefix}{pair[1]}"))
    raise ValueError(f"{label}: {EXPECTED}; {type(module).__name__} has {_listed(module.named_children())}")


def _in_order(module: Any, torch: Any, label: str, prefix: str) -> Found:
    """A Sequential: dense, activation, dense, any number of times, or modules that are blocks themselves."""
    leaves = list(_leaves(module, torch, prefix))
    found, at = Found(), 0
    while at < len(leaves):
        name, leaf = leaves[at]
        three = [child for _, child in leaves[at : at + 3]]
        pattern = [is_dense(child, torch) for child in three]
        if pattern == [True, False, True] and not _has_state(three[1]):
            found.parts.append(Parts(leaf, three[1], three[2], (name, leaves[at + 2][0])))
            at += 3
        elif pattern[0] or not list(leaf.children()):
            break
        else:
            one = _find(leaf, torch, label, f"{name}.")
            found.parts.extend(one.parts)
            found.claims.extend(one.claims)
            at += 1
    if at < len(leaves) or not found.parts:
        more = f", and nothing after it; after {len(found.parts)} such" if found.parts else ""
        raise ValueError(f"{label}: {EXPECTED}{more}; {type(module).__name__} has {_listed(leaves)}")
    return found


def _leaves(module: Any, torch: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, child in module.named_children():
        if isinstance(child, torch.nn.Sequential) and type(child).forward is torch.nn.Sequential.forward:
            yield from _leaves(child, torch, f"{prefix}{name}.")
        elif not _is_idle(child, torch.nn):
            yield f"{prefix}{name}", child


def _is_idle(child: Any, nn: Any) -> bool:
    return isinstance(child, nn.modules.dropout._DropoutNd | nn.Identity)


def _has_state(child: Any) -> bool:
    return any(True for _ in child.parameters())


def _listed(children: Any) -> str:
    return ", ".join(f"{name}={type(child).__name__}" for name, child in children) or "no children"


def _compose(parts: list[Parts]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for part in parts:
            x = part(x)
        return x

    return run


class _Reached(Exception):  # noqa: N818 (no error: it ends a forward that has done its part)
    pass


class Between:
    """What a module's forward does between two of its layers, such as ``F.gelu``, as a function of its own.

    The first layer's output is replaced and the second layer's input caught, each by a hook that is gone afterwards.
    """

    def __init__(self, module: Any, first: Any, second: Any, torch: Any) -> None:
        self.module, self.first, self.second, self.torch = module, first, second, torch
        self.__name__ = f"what {type(module).__name__}.forward does between its dense layers"

    def __call__(self, x: Any) -> Any:
        size, width = dense_sizes(self.first, self.torch)
        rows = -(-x.numel() // width)
        values = self.torch.zeros(rows * width, dtype=x.dtype, device=self.first.weight.device)
        values[: x.numel()] = x.reshape(-1)
        caught: list[Any] = []

        def catch(_: Any, inputs: tuple[Any, ...]) -> None:
            caught.append(inputs[0])
            raise _Reached

        hooks = [
            self.first.register_forward_hook(lambda *_: values.reshape(rows, width)),
            self.second.register_forward_pre_hook(catch),
        ]
        try:
            with evaluating(self.module), contextlib.suppress(_Reached):
                self.module(self.torch.zeros((rows, size), dtype=self.first.weight.dtype, device=values.device))
        finally:
            for hook in hooks:
                hook.remove()
        if not caught or caught[0].numel() != values.numel():
            raise ValueError("its second layer isn't given what its first one gives")
        return caught[0].reshape(-1)[: x.numel()].reshape(x.shape)


def dense_sizes(layer: Any, torch: Any) -> tuple[int, int]:
    """(in, out) features."""
    rows, columns = layer.weight.shape
    return (columns, rows) if isinstance(layer, torch.nn.Linear) else (rows, columns)


@contextlib.contextmanager
def evaluating(*modules: Any) -> Iterator[None]:
    """Modules in eval mode; each part's own flag is put back."""
    modes = [(part, part.training) for part in itertools.chain(*(module.modules() for module in modules))]
    try:
        for module in modules:
            module.eval()
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def check_claims(found: Found, torch: Any, label: str) -> None:
    """Run every module whose children were taken for what it does; ValueError if it does something else."""
    for module, same, first in found.claims:
        width = dense_sizes(first, torch)[0]
        rows = np.random.default_rng(0).standard_normal((_ROWS, width)).astype(np.float32)
        odd = np.repeat(rows[:1], 3, axis=0)
        odd[np.arange(3), 0] = np.nan, np.inf, -np.inf
        for batch in (rows, 100 * rows, odd):  # far out a clamp shows
            _check_rows(module, same, torch.from_numpy(batch), first, label, torch)


def _check_rows(module: Any, same: Any, x: Any, first: Any, label: str, torch: Any) -> None:
    """Run a module and its parts on the same rows."""
    name = type(module).__name__
    with evaluating(module), torch.no_grad():
        x = x.to(device=first.weight.device, dtype=first.weight.dtype)
        want = same(x).cpu().double().numpy()
        try:
            got = module(x).detach().cpu().double().numpy()
        except Exception as error:  # whatever a user's forward raises
            raise ValueError(f"{label}: {name}.forward failed on a {tuple(x.shape)} input: {error}") from error
    if got.shape != want.shape:
        raise ValueError(f"{label}: {name}.forward gave shape {got.shape}, its parts give {want.shape}")
    finite = np.isfinite(want)
    allowed = _ROUNDINGS * torch.finfo(x.dtype).eps * np.abs(want[finite]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        off = np.abs(got - want)
    same_kind = (got == want) | (np.isnan(got) & np.isnan(want)) | (off <= allowed)
    if not same_kind.all():
        worst = np.where(np.isnan(off), np.inf, off)[~same_kind].max()
        raise ValueError(
            f"{label}: {name}.forward doesn't compute dense(gelu(dense(x))) with the layers it has: it differs by "
            f"up to {worst:.3g}. A residual, a scale or another activation isn't part of such a block"
        )

