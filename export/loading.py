"""Reads an ONNX file without its external data, and proves that this data is where it should be.

What stands outside the .onnx file is named by the file itself, so it may name anything. Every location must be a
regular file inside the model's folder, symbolic links followed, and hold as many bytes as the tensor's shape
needs: sizes are asked of the file system, and only a hash in the manifest makes the data be read, a piece at a time.
Whether the graph makes sense is another question, `onnx.checker`'s.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from gelu_fast.export.lazy import require

if TYPE_CHECKING:
    import onnx

MANIFEST_SUFFIX = ".manifest.json"
_LARGEST_MESSAGE = 2**31 - 1  # protobuf's limit
_LARGEST_MANIFEST = 2**20
# Bits of the types that share a byte; NumPy gives each value one of its own.
_PACKED = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}


@dataclass(frozen=True)
class Loaded:
    """A model and the files it stands in.

    Attributes
    ----------
    model : onnx.ModelProto
        External tensors are not loaded.
    path : Path or None
        The .onnx file; None for a model in memory.
    files : tuple of Path
        Every file the model needs, the .onnx file first.
    size : int
        Bytes of all of them; of the serialised model if there is no file.
    sha256 : str
        Hex digest of the .onnx file's bytes, or of the serialised model.
    folder : Path or None
        Where external data is looked for.
    manifest : Path or None
        The manifest that the files were compared with, if there is one.
    """

    model: onnx.ModelProto
    path: Path | None
    files: tuple[Path, ...]
    size: int
    sha256: str
    folder: Path | None
    manifest: Path | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return "the model" if self.path is None else str(self.path)


def load(path_or_model: str | PathLike[str] | onnx.ModelProto) -> Loaded:
    """Read a model, and check its files against each other.

    Parameters
    ----------
    path_or_model : str, PathLike or onnx.ModelProto
        A model in memory must hold all its tensors.

    Raises
    ------
    FileNotFoundError
        If the model isn't there, or one of the files it needs; names them and the tensors.
    ValueError
        If the file is no ONNX model; if a tensor's data leaves the folder, isn't a regular file, or isn't of the
        size that its shape needs; if a file differs from the manifest. Names the tensor or the file.
    TypeError
        If the argument is neither a path nor a model.
    """
    onnx: Any = require("onnx")
    if isinstance(path_or_model, onnx.ModelProto):
        payload = path_or_model.SerializeToString(deterministic=True)
        loaded = Loaded(path_or_model, None, (), len(payload), hashlib.sha256(payload).hexdigest(), None)
    elif isinstance(path_or_model, (str, PathLike)):
        loaded = _read(Path(fspath(path_or_model)))
    else:
        raise TypeError(f"path_or_model: expected a path or an onnx.ModelProto, got {type(path_or_model).__name__}")
    outside: dict[Path, list[str]] = {}
    for tensor in tensors(loaded.model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            outside.setdefault(_location(tensor, loaded.folder), []).append(tensor.name)
        else:
            _check_size(tensor)
    if loaded.path is None:
        return loaded
    path, manifest = loaded.path, loaded.path.with_name(loaded.path.name + MANIFEST_SUFFIX)
    listed = _read_manifest(manifest)
    _check_present(path, outside, listed or {})
    for tensor in tensors(loaded.model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _check_extent(tensor, _location(tensor, loaded.folder))
    _check_hashes(path, loaded.sha256, listed or {})
    size = loaded.size + sum(file.stat().st_size for file in outside)
    return replace(loaded, files=(path, *outside), size=size, manifest=None if listed is None else manifest)


def tensors(model: onnx.ModelProto) -> Iterator[Any]:
    """Every stored tensor: initialisers, Constant nodes and attributes, in subgraphs and functions too.

    protobuf has refused subgraphs that are nested more than about 30 deep.
    """
    yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)


def is_external(model: onnx.ModelProto) -> bool:
    """Whether any tensor stands outside the model's own file."""
    external = require("onnx").TensorProto.EXTERNAL
    return any(tensor.data_location == external for tensor in tensors(model))


def _tensors_of_graph(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _tensors_of_graph(attribute.g)
            for graph in attribute.graphs:
                yield from _tensors_of_graph(graph)


def _read(path: Path) -> Loaded:
    if not path.is_file():
        raise FileNotFoundError(f"path_or_model: no file at {path}")
    size = path.stat().st_size
    if size > _LARGEST_MESSAGE:
        raise ValueError(f"path_or_model: {path} has {size:,} bytes; an ONNX model has at most {_LARGEST_MESSAGE:,}")
    payload = path.read_bytes()
    try:
        model = require("onnx").load_model_from_string(payload)
    except require("google.protobuf.message").DecodeError as error:
        raise ValueError(f"path_or_model: {path} is not an ONNX model, or is damaged: {error}") from error
    if not model.HasField("graph"):  # protobuf reads an empty file, and many others, as a message with nothing in it
        raise ValueError(f"path_or_model: {path} is not an ONNX model, or is damaged: it has no graph")
    return Loaded(model, path, (path,), len(payload), hashlib.sha256(payload).hexdigest(), path.parent)


def _bytes_needed(tensor: Any) -> int | None:
    """What the shape takes as raw data; None where the type has no fixed width."""
    onnx: Any = require("onnx")
    if any(length < 0 for length in tensor.dims):
        raise ValueError(f"tensor {tensor.name!r}: negative length in the shape {tuple(tensor.dims)}")
    if tensor.data_type == onnx.TensorProto.STRING:
        return None
    try:
        name = onnx.TensorProto.DataType.Name(tensor.data_type)
        width: int = _PACKED.get(name, onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * 8)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"tensor {tensor.name!r}: unknown data type {tensor.data_type}") from error
    count = math.prod(int(length) for length in tensor.dims)
    return -(-count * width // 8)  # Python's integers: a lying shape can't overflow


def _check_size(tensor: Any) -> None:
    need = _bytes_needed(tensor)
    if tensor.HasField("raw_data"):
        if need is not None and len(tensor.raw_data) != need:
            raise ValueError(
                f"tensor {tensor.name!r}: shape {tuple(tensor.dims)} needs {need} bytes, "
                f"the model holds {len(tensor.raw_data)}"
            )
        return
    held = max(
        len(values)
        for values in (
            tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data,
            tensor.string_data,
        )
    )  # fmt: skip
    count = math.prod(tensor.dims)
    # Complex numbers take two entries, packed types share one: only a shape that promises far more is wrong.
    if count > 8 * held:
        raise ValueError(
            f"tensor {tensor.name!r}: shape {tuple(tensor.dims)} needs {count} values, the model has {held}"
        )


def _entries(tensor: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _location(tensor: Any, folder: Path | None) -> Path:
    """Where an external tensor stands; ValueError if that isn't inside the folder."""
    location = _entries(tensor).get("location", "")
    if folder is None:
        raise ValueError(
            f"path_or_model: tensor {tensor.name!r} stands outside the model, in {location!r}, and a model in "
            "memory has no folder: pass its path, or load it with its external data"
        )
    pure = (PurePosixPath(location), PureWindowsPath(location))
    if not location or "\0" in location or any(path.anchor or ".." in path.parts for path in pure):
        raise ValueError(
            f"path_or_model: tensor {tensor.name!r} stands in {location!r}; expected a file inside the model's folder"
        )
    path = folder / location
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # a loop of links
        raise ValueError(f"path_or_model: tensor {tensor.name!r} stands in {location!r}: {error}") from error
    if not inside:
        raise ValueError(
            f"path_or_model: tensor {tensor.name!r} stands in {location!r}, a link to {path.resolve()}; "
            "expected a file inside the model's folder"
        )
    return path


def _check_present(path: Path, outside: dict[Path, list[str]], listed: dict[str, Any]) -> None:
    wanted: dict[Path, list[str]] = {path.parent / name: [] for name in listed} | outside
    missing = []
    for file, names in wanted.items():
        stands = [f"tensors {_some(names)} stand there"] if names else []
        if file.exists():
            if not file.is_file():
                raise ValueError(
                    f"path_or_model: {file} is not a regular file; {stands[0] if stands else 'expected one'}"
                )
            continue
        entry = listed.get(file.name)
        said = [f"{entry['size']:,} bytes, sha256 {entry['sha256']}"] if entry else []
        missing.append(f"{file.name} ({'; '.join(said + stands)})")
    if missing:
        raise FileNotFoundError(
            f"path_or_model: {path} is not whole without {', '.join(missing)}: expected in {path.parent}"
        )


def _check_extent(tensor: Any, file: Path) -> None:
    entries, held, where = _entries(tensor), file.stat().st_size, f"tensor {tensor.name!r} in {file.name}"
    need = _bytes_needed(tensor)
    if need is None:
        raise ValueError(f"path_or_model: {where}: strings can't stand outside the model")
    numbers = {}
    for key, default in (("offset", "0"), ("length", str(need))):
        text = entries.get(key, default)
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise ValueError(f"path_or_model: {where}: expected a number of bytes as {key}, got {text!r}")
        numbers[key] = int(text)
    if numbers["length"] != need:
        raise ValueError(
            f"path_or_model: {where}: shape {tuple(tensor.dims)} needs {need} bytes, the model says {numbers['length']}"
        )
    if numbers["offset"] + need > held:
        end = numbers["offset"] + need
        raise ValueError(f"path_or_model: {where}: needs bytes {numbers['offset']} to {end}, the file has {held}")


def _read_manifest(manifest: Path) -> dict[str, Any] | None:
    """The manifest's files by name; None if there is no manifest."""
    if not manifest.is_file():
        return None
    try:
        if manifest.stat().st_size > _LARGEST_MANIFEST:
            raise ValueError(f"more than {_LARGEST_MANIFEST:,} bytes")
        content = json.loads(manifest.read_text("utf-8"))
        if not isinstance(content, dict) or content.get("format") != 1:
            raise ValueError("expected an object with format 1")
        listed = {}
        for entry in content["files"]:
            name, size, digest = entry["name"], entry["size"], entry["sha256"]
            if not all(isinstance(text, str) for text in (name, digest)) or not isinstance(size, int):
                raise ValueError(f"expected a name, a size and a hash, got {entry!r}")
            if name != PurePosixPath(name).name or name != PureWindowsPath(name).name or name == "..":
                raise ValueError(f"expected the bare name of a file, got {name!r}")
            listed[name] = entry
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"path_or_model: {manifest} is no manifest of format 1: {error}") from error
    return listed


def _check_hashes(path: Path, sha256: str, listed: dict[str, Any]) -> None:
    for name, entry in listed.items():
        file = path.with_name(name)
        size = file.stat().st_size
        if size != entry["size"]:
            raise ValueError(f"path_or_model: {file} has {size:,} bytes, the manifest says {entry['size']:,}")
        digest = sha256
        if file != path:
            with file.open("rb") as stream:  # a piece at a time
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != entry["sha256"]:
            raise ValueError(f"path_or_model: {file} has sha256 {digest}, the manifest says {entry['sha256']}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
