"""What is wrong with a model whose outputs are: by its tensors, if we know what they are called, or by trying.

Our own models say which tensor is which. Of another's we only see values, so likely mistakes are made on purpose in
float64, and the one whose outputs the model has is named.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gelu_fast.export import forms, graph
from gelu_fast.export.blocks import Array, Stack
from gelu_fast.export.comparison import Outputs
from gelu_fast.export.lazy import require
from gelu_fast.export.loading import Loaded
from gelu_fast.export.reference import forward

_MOST_TRIALS = 24
_FEW_ROWS = 4
_NEAR = 0.1  # relative distance up to which a tensor is taken for a changed copy of another


@dataclass(frozen=True)
class _Use:
    """The initialiser that one of our models uses for a tensor of the block."""

    tensor: Any
    transposed: bool

    @property
    def shape(self) -> tuple[int, ...]:
        dims = tuple(int(n) for n in self.tensor.dims)
        return dims[::-1] if self.transposed else dims


def mixed_dtypes(model: Any) -> list[str]:
    """A sentence for each weight stored in another floating dtype than the model's input has."""
    stored = {tensor.name for tensor in model.graph.initializer}
    kinds = [value.type.tensor_type.elem_type for value in model.graph.input if value.name not in stored]
    if len(kinds) != 1 or kinds[0] not in forms.FLOATS:
        return []
    return [
        f"tensor {tensor.name!r} is stored in {forms.FLOATS[tensor.data_type]}, the model computes in "
        f"{forms.FLOATS[kinds[0]]}"
        for tensor in model.graph.initializer
        if tensor.data_type in forms.FLOATS and tensor.data_type != kinds[0]
    ]


def uses(model: Any, stack: Stack) -> dict[str, _Use] | None:
    """Which initialiser stands for which tensor of the stack; None if the model isn't one of ours.

    Raises
    ------
    ValueError
        If a shape can't match, or a bias is on one side alone; names the tensor.
    """
    if model.producer_name != graph.PRODUCER or not graph.activations(model):
        return None
    layers = len(graph.activations(model))
    if layers != len(stack.blocks):
        raise ValueError(f"path_or_model: the model has {layers} blocks, the reference has {len(stack.blocks)}")
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    made = {output: node for node in model.graph.node for output in node.output}
    found: dict[str, _Use] = {}
    for index in range(layers):
        label = graph.prefix(stack, index)
        after = graph.OUTPUT if index == layers - 1 else f"{label}out"
        for number, output in ((1, f"{label}hidden"), (2, after)):
            node = made.get(output)
            if node is not None and node.op_type == "Add" and node.input[1] in stored:
                found[f"{label}b{number}"] = _Use(stored[node.input[1]], False)
                node = made.get(node.input[0])
            if node is None or node.op_type != "MatMul":
                return None
            weight, turned = node.input[1], False
            if weight in made and made[weight].op_type == "Transpose":
                weight, turned = made[weight].input[0], True
            if weight not in stored:
                return None
            user = made.get(f"{label}activated") if number == 1 else None
            if user is not None and user.domain == forms.CONTRIB and len(user.input) > 1:  # BiasGelu
                found[f"{label}b1"] = _Use(stored[user.input[1]], False)
            found[f"{label}w{number}"] = _Use(stored[weight], turned)
    for name in sorted(set(found) | set(stack.tensors)):
        want = stack.tensors[name].shape if name in stack.tensors else None
        held = found[name].shape if name in found else None
        if held != want:
            says = [f"has shape {shape}" if shape is not None else "doesn't have it" for shape in (held, want)]
            raise ValueError(f"tensor {name!r}: the model {says[0]}, the reference {says[1]}")
    return found


def compare_weights(found: dict[str, _Use], loaded: Loaded, stack: Stack) -> list[str]:
    """A sentence for each tensor whose values aren't the reference's, rounded to the model's dtype."""
    failures = []
    for name, use in found.items():
        stored, given = read(use.tensor, loaded), stack.tensors[name]
        stored = stored.T if use.transposed else stored
        differs = _differs(stored, given)
        if not differs.any():
            continue
        if stored.shape == stored.shape[::-1] and stored.ndim == 2 and not _differs(stored.T, given).any():
            failures.append(f"tensor {name!r} is transposed")
            continue
        others = (n for n, a in stack.tensors.items() if n != name and a.shape == stored.shape)
        other = next((n for n in others if not _differs(stored, stack.tensors[n]).any()), None)
        if other is not None:
            failures.append(f"tensor {name!r} holds the reference's {other!r}")
            continue
        first = tuple(int(i) for i in np.argwhere(differs)[0])
        with np.errstate(invalid="ignore"):
            most = np.abs(stored.astype(np.float64) - given.astype(np.float64)).max()
        failures.append(
            f"tensor {name!r}: {int(differs.sum())} of {differs.size} values differ from the reference, by up to "
            f"{most:.3g}; at {first} the model has {stored[first]}, the reference {given[first]}"
        )
    return failures


def explain(outputs: Outputs, loaded: Loaded, stack: Stack, formula: str) -> list[str]:
    """Why the outputs of a model whose tensors we can't tell are wrong, as far as values show."""
    use = outputs.usable
    y, x = outputs.y[use], outputs.x[use]
    if len(y) == 0 or not np.isfinite(y).all():
        return []
    allowed = outputs.target.allowed[use, None]
    few = slice(0, _FEW_ROWS)
    for text, wrong in itertools.islice(_mistakes(stack), _MOST_TRIALS):
        # A few rows rule most out.
        if all(
            (np.abs(forward(wrong, x[rows], formula) - y[rows]) <= allowed[rows]).all() for rows in (few, slice(None))
        ):
            return [f"the outputs are those of the reference with {text}"]
    off = y - outputs.target.y[formula][use]
    shift = np.median(off, axis=0)
    if np.abs(shift).max() > 0 and (np.abs(off - shift) <= allowed).all():
        return [f"every row is off by the same: the last bias is wrong, by up to {np.abs(shift).max():.3g}"]
    return _changed(loaded, stack)


def read(tensor: Any, loaded: Loaded) -> Array:
    """The values of a tensor, external ones too."""
    return np.asarray(require("onnx.numpy_helper").to_array(tensor, str(loaded.folder or "")))


def _mistakes(stack: Stack) -> Iterator[tuple[str, Stack]]:
    blocks = stack.blocks
    several = len(blocks) > 1

    def changed(index: int, **values: Any) -> Stack:
        return Stack((*blocks[:index], replace(blocks[index], **values), *blocks[index + 1 :]))

    for index, block in enumerate(blocks):
        label = f"layers.{index}." if several else ""
        square = [name for name in ("w1", "w2") if len({*getattr(block, name).shape}) == 1]
        for name in square:
            yield f"{label}{name} transposed", changed(index, **{name: getattr(block, name).T})
        if len(square) == 2:
            yield f"{label}w1 and {label}w2 transposed", changed(index, w1=block.w1.T, w2=block.w2.T)
        if not square and block.w1.shape == block.w2.shape[::-1]:
            yield f"{label}w1 and {label}w2 exchanged", changed(index, w1=block.w2.T, w2=block.w1.T)
        for name in ("b1", "b2"):
            if getattr(block, name) is not None:
                yield f"{label}{name} left out", changed(index, **{name: None})
    for i, j in itertools.combinations(range(len(blocks)), 2):
        order = list(blocks)
        order[i], order[j] = order[j], order[i]
        if all(a.out_features == b.in_features for a, b in itertools.pairwise(order)):
            yield f"layers {i} and {j} exchanged", Stack(tuple(order))


def _changed(loaded: Loaded, stack: Stack) -> list[str]:
    """Tensors that are near one of the reference's, but not equal."""
    stored = {t.name: read(t, loaded) for t in loaded.model.graph.initializer if t.data_type in forms.FLOATS}
    found = []
    for name, given in stack.tensors.items():
        both = [(n, a) for n, a in stored.items() if a.shape == given.shape]
        both += [(n, a.T) for n, a in stored.items() if a.ndim == 2 and a.shape[::-1] == given.shape]
        if any(not _differs(a, given).any() for _, a in both):
            continue
        size = float(np.linalg.norm(given.astype(np.float64)))
        off = {n: np.abs(a.astype(np.float64) - given.astype(np.float64)) for n, a in both}
        nearest = min(off, key=lambda n: float(np.linalg.norm(off[n])), default=None)
        if nearest is not None and np.linalg.norm(off[nearest]) <= _NEAR * size:
            most, count = off[nearest].max(), int(np.count_nonzero(off[nearest]))
            found.append(
                f"the model's {nearest!r} is near the reference's {name!r}, but {count} of {given.size} values differ, "
                f"by up to {most:.3g}"
            )
    return found


def _differs(stored: Array, given: Array) -> Any:
    with np.errstate(over="ignore", under="ignore"):
        rounded = given.astype(stored.dtype, copy=False)
    both_nan = (stored != stored) & (rounded != rounded)
    return (stored != rounded) & ~both_nan
