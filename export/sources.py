"""Where a block's weights come from: arrays, a PyTorch module, an .npz or a .safetensors file.

All end in one validated record, `Block`, so that nothing downstream checks weights again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
# (w1, b1, w2, b2) arrays, a torch.nn.Module, a mapping of names to arrays, or the path of a weights file.
Source: TypeAlias = Any

NAMES = ("w1", "b1", "w2", "b2")
PLAIN_NAMES = {name: name for name in NAMES}
TORCH_NAMES = {"w1": "fc1.weight", "b1": "fc1.bias", "w2": "fc2.weight", "b2": "fc2.bias"}
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
    approximate : {"none", "tanh"} or None
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
        dtypes = {name: array.dtype for name, array in self.tensors.items()}
        if len(set(dtypes.values())) > 1:
            each = ", ".join(f"{self.labels[name]} is {dtype}" for name, dtype in dtypes.items())
            raise TypeError(f"source: mixed dtypes: {each}; convert them to one, or pass dtype='float32'")
        return dtypes["w1"]

    def astype(self, dtype: np.dtype[Any]) -> Block:
        """The same block in another dtype; ValueError naming the tensor if a value overflows to infinity."""
        converted: dict[str, Array] = {}
        for name, array in self.tensors.items():
            with np.errstate(over="ignore", under="ignore"):
                converted[name] = array.astype(dtype, copy=False)
            if converted[name] is not array:
                _check_finite(converted[name], f"{self.labels[name]} as {dtype}")
        return Block(**{**vars(self), **converted})


def read_source(source: Source) -> Block:
    """Turn what a caller passed into a validated `Block`.

    Parameters
    ----------
    source : tuple, mapping, torch.nn.Module, str, PathLike or Block
        ``(w1, b1, w2, b2)`` with ``w1`` (in, hidden), ``w2`` (hidden, out) and biases (hidden,) and (out,) or
        None; a mapping with these names, or with ``fc1.weight`` (hidden, in), ``fc1.bias``, ``fc2.weight``
        (out, hidden), ``fc2.bias`` as PyTorch stores them; the path of an .npz or .safetensors file holding
        such a mapping; or a module made of Linear, GELU, Linear (see `gelu_fast.export.torch_source`). Any
        byte order, strides and memory order.

    Raises
    ------
    TypeError
        For a source of no known kind, or a tensor that isn't real floating point.
    ValueError
        For wrong shapes, non-finite values, or a file that can't be read.
    FileNotFoundError
        For a path that isn't there.
    """
    if isinstance(source, Block):
        return source
    if isinstance(source, (str, PathLike)):
        return block_from_mapping(load_weights(source))
    torch = sys.modules.get("torch")  # never imported here: a module's owner has imported it
    if torch is not None and isinstance(source, torch.nn.Module):
        from gelu_fast.export.torch_source import block_from_module

        return block_from_module(source)
    if isinstance(source, Mapping):
        return block_from_mapping(source)
    if isinstance(source, Sequence) and len(source) == len(NAMES):
        return make_block(dict(zip(NAMES, source, strict=True)), PLAIN_NAMES, transposed=False)
    got = f"{type(source).__name__} of length {len(source)}" if hasattr(source, "__len__") else type(source).__name__
    raise TypeError(
        "source: expected (w1, b1, w2, b2), a torch.nn.Module, a mapping of tensor names to arrays, or the "
        f"path of an .npz or .safetensors file; got {got}"
    )


def load_weights(path: str | PathLike[str]) -> dict[str, Array]:
    """All tensors of an .npz (never unpickled) or .safetensors file, by name.

    Raises
    ------
    FileNotFoundError, ValueError, ImportError
        If the file is missing, corrupt or of another kind; if safetensors isn't installed.
    """
    path = Path(fspath(path))
    if path.suffix not in (".npz", ".safetensors"):
        hint = "; pickled checkpoints can run code when loaded, so save the state_dict as .safetensors"
        raise ValueError(
            f"source: weights come from .npz or .safetensors, got {str(path)!r}"
            + (hint if path.suffix in (".pt", ".pth", ".bin", ".ckpt", ".pkl") else "")
        )
    if not path.is_file():
        raise FileNotFoundError(f"source: no weights file at {path}")
    where = "the file"
    try:
        if path.suffix == ".npz":
            found: dict[str, Array] = {}
            with np.load(path, allow_pickle=False) as archive:
                for where in archive.files:
                    found[where] = archive[where]
            return found
        from gelu_fast.export.lazy import require

        return dict(require("safetensors.numpy").load_file(path))
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # zipfile, zlib, NumPy and safetensors each raise their own kinds
        raise ValueError(f"source: {path}: can't read {where}: {error}") from error


def block_from_mapping(tensors: Mapping[str, Any]) -> Block:
    """A block from tensors called ``w1 b1 w2 b2``, or ``fc1.weight fc1.bias fc2.weight fc2.bias``."""
    for labels, transposed in ((PLAIN_NAMES, False), (TORCH_NAMES, True)):
        if labels["w1"] in tensors and labels["w2"] in tensors:
            extra = sorted(set(tensors) - set(labels.values()))
            if extra:  # dropping a tensor silently would export another model than the one given
                raise ValueError(f"source: {', '.join(extra)}: not part of a block of {', '.join(labels.values())}")
            arrays = {name: tensors.get(label) for name, label in labels.items()}
            return make_block(arrays, labels, transposed=transposed)
    raise ValueError(
        f"source: expected tensors {', '.join(NAMES)}, or {', '.join(TORCH_NAMES.values())} (biases may "
        f"be missing); got {', '.join(map(repr, sorted(tensors))) or 'none'}"
    )


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
    return read_source((w1, b1, w2, b2))


def make_block(
    arrays: Mapping[str, Any], labels: dict[str, str], *, transposed: bool, approximate: str | None = None
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
    """
    given = {name: _to_array(value, labels[name]) for name, value in arrays.items() if value is not None}
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


def _to_array(value: Any, label: str) -> Array:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.dtype is torch.bfloat16:  # NumPy has no such dtype; float32 holds every value
            value = value.float()
        try:
            value = value.detach().cpu().numpy()
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise TypeError(f"{label}: this tensor's values can't be read: {error}") from error
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{label}: not an array: {error}") from error
    # ml_dtypes' bfloat16 has kind "V"; it converts like a float.
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise TypeError(f"{label}: expected floating-point weights, got dtype {array.dtype}")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    _check_finite(array, label)
    return array


def _check_finite(array: Array, label: str) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        index = tuple(int(i) for i in np.argwhere(~finite)[0])
        count = array.size - int(np.count_nonzero(finite))
        raise ValueError(
            f"{label}: expected finite weights, got {array[index]} at {index}; {count} of {array.size} aren't finite"
        )
