"""The records every source of weights ends in: `Block`, one feed-forward block, and `Stack`, one or more in a row.

Both are checked when they are made, so that nothing downstream checks weights again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gelu_fast.ffn_sources import tensor_array

Array: TypeAlias = npt.NDArray[Any]

NAMES = ("w1", "b1", "w2", "b2")
PLAIN_NAMES = {name: name for name in NAMES}
DTYPES = ("float16", "bfloat16", "float32", "float64")
TRANSPOSE_HINT = "; PyTorch's Linear.weight is (out, in): pass weight.T"


@dataclass(frozen=True, eq=False)
class Block:
    """The weights of ``gelu(x @ w1 + b1) @ w2 + b2``: shapes that fit, finite, native byte order, C order.

    Attributes
    ----------
    w1 : (in, hidden) array
    b1 : (hidden,) array or None
    w2 : (hidden, out) array
    b2 : (out,) array or None
    approximate : {"none", "tanh", "quick"} or None
        The formula the source itself states; None where it can't (arrays and files).
    labels : dict
        What the source calls each tensor, for error messages.
    """

    w1: Array
    b1: Array | None
    w2: Array
    b2: Array | None
    approximate: str | None
    labels: dict[str, str]

    @property
    def in_features(self) -> int:
        return int(self.w1.shape[0])

    @property
    def hidden_features(self) -> int:
        return int(self.w1.shape[1])

    @property
    def out_features(self) -> int:
        return int(self.w2.shape[1])

    @property
    def tensors(self) -> dict[str, Array]:
        """The tensors there are, by their names in ``("w1", "b1", "w2", "b2")``."""
        found = {name: getattr(self, name) for name in NAMES}
        return {name: array for name, array in found.items() if array is not None}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The one dtype of all tensors.

        Raises
        ------
        TypeError
            If they differ, naming each.
        """
        return _one_dtype((self,))

    def astype(self, dtype: npt.DTypeLike) -> Block:
        """The same block in another dtype; ValueError naming the tensor if a finite value overflows to infinity."""
        converted: dict[str, Array] = {}
        for name, array in self.tensors.items():
            with np.errstate(over="ignore", under="ignore"):
                converted[name] = array.astype(dtype, copy=False)
            if converted[name] is not array:
                _check_finite(converted[name], f"{self.labels[name]} as {np.dtype(dtype)}", but=array)
        return Block(**{**vars(self), **converted})


@dataclass(frozen=True, eq=False)
class Stack:
    """Blocks in a row, each fed with what the one before gives.

    Attributes
    ----------
    blocks : tuple of Block
        At least one.

    Raises
    ------
    ValueError
        If there is none, if they don't chain, or if they state different formulas.
    """

    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ValueError("source: expected at least one block, got none")
        for k, (block, after) in enumerate(zip(self.blocks, self.blocks[1:], strict=False)):
            if block.out_features != after.in_features:
                raise ValueError(
                    f"source: block {k} gives {block.out_features} features ({block.labels['w2']}), block {k + 1} "
                    f"expects {after.in_features} ({after.labels['w1']})"
                )
        stated = [block.approximate for block in self.blocks]
        if len(set(stated)) > 1:  # a graph has one formula; those that state none can't be taken to mean another's
            each = ", ".join(f"block {k} {form!r}" for k, form in enumerate(stated))
            raise ValueError(f"source: expected blocks that all state one formula, or none of them any; got {each}")

    @property
    def in_features(self) -> int:
        return self.blocks[0].in_features

    @property
    def out_features(self) -> int:
        return self.blocks[-1].out_features

    @property
    def hidden_features(self) -> tuple[int, ...]:
        """One number per block."""
        return tuple(block.hidden_features for block in self.blocks)

    @property
    def approximate(self) -> str | None:
        """The formula that all blocks state, or None if they can't."""
        return self.blocks[0].approximate

    @property
    def tensors(self) -> dict[str, Array]:
        """All tensors: ``w1 b1 w2 b2`` of a single block, ``layers.0.w1`` and so on of several."""
        if len(self.blocks) == 1:
            return self.blocks[0].tensors
        return {f"layers.{k}.{name}": a for k, block in enumerate(self.blocks) for name, a in block.tensors.items()}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The one dtype of all tensors; TypeError naming each if they differ."""
        return _one_dtype(self.blocks)

    def astype(self, dtype: npt.DTypeLike) -> Stack:
        """The same blocks in another dtype; ValueError naming the tensor if a finite value overflows to infinity."""
        return Stack(tuple(block.astype(dtype) for block in self.blocks))


def make_block(
    arrays: Mapping[str, Any],
    labels: dict[str, str],
    *,
    transposed: bool,
    approximate: str | None = None,
    allow_nonfinite: bool = False,
) -> Block:
    """Check four tensors against each other and make the record.

    Parameters
    ----------
    arrays : mapping
        ``w1 b1 w2 b2`` to array-likes; biases may be None.
    labels : dict
        What error messages call each.
    transposed : bool
        Whether the weights are (out, in), as PyTorch stores them.
    approximate : str, optional
        The formula the source states.
    allow_nonfinite : bool, optional
        Whether nan and infinities are let through.
    """
    given = {name: to_array(a, labels[name], allow_nonfinite) for name, a in arrays.items() if a is not None}
    order = "(hidden, in)" if transposed else "(in, hidden)"
    for name, expected in (("w1", order), ("w2", "(out, hidden)" if transposed else "(hidden, out)")):
        if name not in given:
            raise ValueError(f"{labels[name]}: expected an array of shape {expected}, got None")
        array = given[name]
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(f"{labels[name]}: expected shape {expected}, none of them 0, got {array.shape}")
    w1, w2 = (given[name].T if transposed else given[name] for name in ("w1", "w2"))
    if w1.shape[1] != w2.shape[0]:
        want = f"(out, {w1.shape[1]})" if transposed else f"({w1.shape[1]}, out)"
        hint = TRANSPOSE_HINT if not transposed and w1.shape[0] == w2.shape[1] else ""
        raise ValueError(
            f"{labels['w2']}: doesn't chain with {labels['w1']} of shape {given['w1'].shape}: "
            f"expected {want}, got {given['w2'].shape}{hint}"
        )
    for name, length in (("b1", w1.shape[1]), ("b2", w2.shape[1])):
        if name in given and given[name].shape != (length,):
            hint = TRANSPOSE_HINT if not transposed and given[name].shape == (w1.shape[0],) else ""
            raise ValueError(f"{labels[name]}: expected shape ({length},), got {given[name].shape}{hint}")
    tidy = {name: np.ascontiguousarray(array) for name, array in (given | {"w1": w1, "w2": w2}).items()}
    return Block(tidy["w1"], tidy.get("b1"), tidy["w2"], tidy.get("b2"), approximate, dict(labels))


def random_block(in_features: int, hidden_features: int, seed: int) -> Block:
    """A float32 block with PyTorch's initial distribution, U(−1/√fan_in, 1/√fan_in)."""
    for name, value in (("in_features", in_features), ("hidden_features", hidden_features)):
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    rng = np.random.default_rng(seed)
    n, m = in_features, hidden_features

    def uniform(*shape: int, fan_in: int) -> Array:
        return np.asarray(rng.uniform(-1, 1, shape) / np.sqrt(fan_in), np.float32)

    w1, b1 = uniform(n, m, fan_in=n), uniform(m, fan_in=n)
    w2, b2 = uniform(m, n, fan_in=m), uniform(n, fan_in=m)
    return make_block({"w1": w1, "b1": b1, "w2": w2, "b2": b2}, PLAIN_NAMES, transposed=False)


def to_array(value: Any, label: str, allow_nonfinite: bool = False) -> Array:
    """A float16, bfloat16, float32 or float64 array of native byte order; errors name the tensor."""
    torch = sys.modules.get("torch")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{label}: expected an array without a mask, got a masked array; .filled() says what it hides")
    if torch is not None and isinstance(value, torch.Tensor):
        try:
            value = tensor_array(value)
        except (RuntimeError, TypeError, NotImplementedError) as error:  # on the meta device, sparse, of odd dtypes
            raise TypeError(f"{label}: this tensor's values can't be read: {error}") from error
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{label}: not an array: {error}") from error
    if array.dtype.name not in DTYPES:
        hint = "; .npz can't hold bfloat16, .safetensors can" if array.dtype.kind == "V" else ""
        raise TypeError(f"{label}: expected weights of {', '.join(DTYPES)}, got dtype {array.dtype}{hint}")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if not allow_nonfinite:
        _check_finite(array, label)
    return array


def _one_dtype(blocks: Sequence[Block]) -> np.dtype[Any]:
    dtypes = {block.labels[name]: array.dtype for block in blocks for name, array in block.tensors.items()}
    if len(set(dtypes.values())) > 1:
        each = ", ".join(f"{label} is {dtype}" for label, dtype in dtypes.items())
        raise TypeError(f"source: mixed dtypes: {each}; convert them to one, or pass dtype='float32'")
    return next(iter(dtypes.values()))


def _check_finite(array: Array, label: str, but: Array | None = None) -> None:
    """ValueError if a value isn't finite, unless that of `but` at its place isn't either."""
    wrong = ~np.isfinite(array)
    if but is not None and wrong.any():
        wrong &= np.isfinite(but)
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        count = int(np.count_nonzero(wrong))
        raise ValueError(
            f"{label}: expected finite weights, got {array[index]} at {index}; {count} of {array.size} aren't finite"
        )
