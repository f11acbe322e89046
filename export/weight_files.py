"""Blocks in .npz and .safetensors files, and in mappings of tensor names to arrays.

Names say which tensor is which, and how a weight lies:

====================================================== ===========================================================
``w1 b1 w2 b2``                                        (in, out)
``fc1.weight fc1.bias fc2.weight fc2.bias``            (out, in), as nn.Linear stores it
``intermediate.dense.weight … output.dense.weight …``  (out, in), BERT; ``output.LayerNorm`` is outside of the block
``c_fc.weight … c_proj.weight …``                      (in, out) by Hugging Face's GPT-2 (Conv1D), (out, in) by nanoGPT
                                                       (nn.Linear), under the same names: the shapes must tell
====================================================== ===========================================================

Any of them may have a prefix; several blocks are prefixes that differ in one number, such as ``layers.0.w1``.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from gelu_fast.export.blocks import NAMES, PLAIN_NAMES, Array, Block, make_block
from gelu_fast.export.lazy import require


@dataclass(frozen=True)
class _Naming:
    names: dict[str, str]
    transposed: bool | None  # None: shapes must tell
    ignored: tuple[str, ...] = ()


def _torch_names(first: str, second: str) -> dict[str, str]:
    return {"w1": f"{first}.weight", "b1": f"{first}.bias", "w2": f"{second}.weight", "b2": f"{second}.bias"}


TORCH_NAMES = _torch_names("fc1", "fc2")
_NAMINGS = (
    _Naming(PLAIN_NAMES, False),
    _Naming(TORCH_NAMES, True),
    _Naming(
        _torch_names("intermediate.dense", "output.dense"), True, ("output.LayerNorm.weight", "output.LayerNorm.bias")
    ),
    _Naming(_torch_names("c_fc", "c_proj"), None),
)
_NUMBER = re.compile(r"\d+")


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
            if not zipfile.is_zipfile(path):
                raise ValueError("it is no .npz archive")
            with np.load(path, allow_pickle=False) as archive:
                for where in archive.files:
                    found[where] = archive[where]
            return found
        return _load_safetensors(path)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # zipfile, zlib, NumPy and safetensors each raise their own kinds
        reason = "it holds Python objects, which are never loaded" if "allow_pickle" in str(error) else error
        raise ValueError(f"source: {path}: can't read {where}: {reason}") from error


def _load_safetensors(path: Path) -> dict[str, Array]:
    safetensors: Any = require("safetensors")
    with contextlib.suppress(ImportError):
        importlib.import_module("ml_dtypes")  # tells NumPy of bfloat16, which safetensors then asks it for
    with safetensors.safe_open(path, framework="np") as file:
        kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (no mapping)
        narrow = set() if _knows_bfloat16() else {name for name, kind in kinds.items() if kind == "BF16"}
        found: dict[str, Array] = {name: file.get_tensor(name) for name in kinds if name not in narrow}
    # Without ml_dtypes float32 holds every value: a bfloat16 is a float32's upper half.
    for name, view in safetensors.deserialize(path.read_bytes()) if narrow else ():
        if name in narrow:
            halves = np.frombuffer(view["data"], "<u2").astype("<u4")
            found[name] = (halves << 16).view("<f4").reshape(view["shape"])
    return found


def _knows_bfloat16() -> bool:
    try:
        np.dtype("bfloat16")
    except TypeError:
        return False
    return True


def blocks_from_mapping(tensors: Mapping[str, Any], prefix: str, allow_nonfinite: bool) -> list[Block]:
    """The blocks among named tensors, in the order of their numbers.

    Parameters
    ----------
    tensors : mapping
        Names as in this module's docstring; biases may be missing or None.
    prefix : str
        Begins the name of every tensor in error messages.
    allow_nonfinite : bool
        Whether nan and infinities are let through.

    Raises
    ------
    ValueError
        If there is no block, if a tensor is part of none, if the order is unclear, or a tensor is wrong.
    """
    for name in tensors:
        if not isinstance(name, str):
            raise TypeError(f"source: expected names of tensors as keys, got {name!r}")
    found = {start: naming for naming in _NAMINGS for start in _starts(tensors, naming)}
    if not found:
        names = [*map(repr, sorted(tensors))]
        got = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        raise ValueError(
            f"source: expected tensors {', '.join(NAMES)}, or {', '.join(TORCH_NAMES.values())}, or those of BERT's "
            f"or GPT-2's MLP (biases may be missing; prefixes such as layers.0. are fine); got {got or 'none'}"
        )
    known = {start + name for start, naming in found.items() for name in (*naming.names.values(), *naming.ignored)}
    extra = sorted(set(tensors) - known)
    if extra:  # dropping a tensor silently would export another model than the one given
        each = ", ".join(extra[:8]) + (f" and {len(extra) - 8} more" if len(extra) > 8 else "")
        expected = ", ".join(next(iter(found.values())).names.values())
        raise ValueError(f"source: {each}: not part of a block of {expected}")
    return [_block(tensors, start, found[start], prefix, allow_nonfinite) for start in _in_order(list(found))]


def _starts(tensors: Mapping[str, Any], naming: _Naming) -> list[str]:
    """The prefixes under which both weights stand."""
    first, second = naming.names["w1"], naming.names["w2"]
    ends = [name[: -len(first)] for name in tensors if name == first or name.endswith(f".{first}")]
    return [start for start in ends if start + second in tensors]


def _in_order(starts: list[str]) -> list[str]:
    """Prefixes sorted by the one number in which they differ, which may miss none."""
    if len(starts) == 1:
        return starts
    numbers = [[int(n) for n in _NUMBER.findall(start)] for start in starts]
    shapes = {_NUMBER.sub("#", start) for start in starts}
    varying = [k for k in range(len(numbers[0])) if len({n[k] for n in numbers}) > 1] if len(shapes) == 1 else []
    each = ", ".join(repr(start) for start in sorted(starts))
    if len(varying) != 1:
        raise ValueError(f"source: expected blocks whose prefixes differ in one number, their order; got {each}")
    order = sorted(zip((n[varying[0]] for n in numbers), starts, strict=True))
    if [n for n, _ in order] != list(range(order[0][0], order[0][0] + len(order))):
        raise ValueError(f"source: expected blocks numbered one after the other; got {each}")
    return [start for _, start in order]


def _block(tensors: Mapping[str, Any], start: str, naming: _Naming, prefix: str, allow_nonfinite: bool) -> Block:
    labels = {key: f"{prefix}{start}{name}" for key, name in naming.names.items()}
    arrays = {key: tensors.get(start + name) for key, name in naming.names.items()}
    transposed = _orientation(arrays, labels) if naming.transposed is None else naming.transposed
    return make_block(arrays, labels, transposed=transposed, allow_nonfinite=allow_nonfinite)


def _orientation(arrays: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether weights are (out, in), told by which way they chain and fit their biases; refused if both ways do."""
    w1, b1, w2, b2 = (None if arrays[name] is None else tuple(np.shape(arrays[name])) for name in NAMES)
    if w1 is None or w2 is None or len(w1) != 2 or len(w2) != 2:
        return False  # make_block says what is wrong
    fits = [
        out_in
        for out_in, (first, second) in ((False, (w1, w2)), (True, (w1[::-1], w2[::-1])))
        if first[1] == second[0] and b1 in (None, first[1:]) and b2 in (None, second[1:])
    ]
    if len(fits) == 2:
        raise ValueError(
            f"source: {labels['w1']} {w1} and {labels['w2']} {w2} fit both as (in, out), as Conv1D stores them, and as "
            "(out, in), as nn.Linear does: pass them as w1, w2 (in, out) or as fc1.weight, fc2.weight (out, in)"
        )
    return fits[0] if fits else False
