"""Files that appear whole or not at all: written in a hidden folder beside their goal, and moved from there.

A model's weights may stand in a second file. Its name carries its hash, so that a new model never meets old weights:
the data is moved first, then the model, in one step that replaces the old one, then the manifest; the old data goes
last.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gelu_fast.export import graph, loading
from gelu_fast.export.blocks import Array

if TYPE_CHECKING:
    import onnx

# ONNX stores the model as one protobuf message, which can't pass 2 GiB; leave room for the graph itself.
MAX_BYTES = 2**31 - 2**20
_ALIGN = 4096  # so that a runtime can map each tensor
_CHUNK = 1 << 24


def check_path(path: Any, overwrite: bool, argument: str = "path") -> Path:
    """The path of a file that may be written; raises as `gelu_fast.export.export_ffn` says, naming the argument."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise TypeError(f"{argument}: expected the name of a file, got {path!r}")
    text = os.fsdecode(os.fspath(path))
    goal = Path(text)
    if goal.is_dir() or text.endswith(os.sep):
        raise IsADirectoryError(f"{argument}: {text} is a directory, expected a file name")
    if not goal.parent.is_dir():
        raise FileNotFoundError(f"{argument}: the directory {goal.parent} doesn't exist")
    if goal.exists() and not goal.is_file():
        raise OSError(f"{argument}: {goal} is a device or a pipe, expected the name of a regular file")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{argument}: expected a name in UTF-8, since onnx takes no other, got {text!r}") from None
    for file in (goal, manifest_of(goal)):
        if not overwrite and os.path.lexists(file):
            raise _exists(file, argument)
    return goal


def _exists(goal: Path, argument: str = "path") -> FileExistsError:
    return FileExistsError(f"{argument}: {goal} exists already; overwrite=True (--overwrite) replaces it")


def manifest_of(goal: Path) -> Path:
    """Where the manifest of a model with external data stands."""
    return goal.with_name(f"{goal.name}.manifest.json")


@contextlib.contextmanager
def staged(goal: Path, overwrite: bool) -> Iterator[Stage]:
    """A folder beside `goal` for the files to come; gone afterwards, whatever happened."""
    folder = goal.parent / f".{goal.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        folder.mkdir()
    except OSError as error:
        raise type(error)(error.errno, f"path: can't write in {goal.parent}: {error.strerror}") from error
    try:
        yield Stage(folder, goal, overwrite)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Stage:
    """Files on their way to `goal`."""

    def __init__(self, folder: Path, goal: Path, overwrite: bool) -> None:
        self.model = folder / goal.name
        self._goal, self._overwrite = goal, overwrite
        self._data: list[Path] = []

    def write(self, model: onnx.ModelProto, tensors: Mapping[str, Array], external_data: str | bool) -> None:
        """Fill the model's initialisers from `tensors`, in the file or beside it; check it; write it.

        Raises
        ------
        ValueError
            If the model isn't valid, or doesn't fit one file and must.
        """
        size = sum(array.nbytes for array in tensors.values())
        if size > MAX_BYTES and external_data is False:
            raise ValueError(
                f"external_data: the weights take {size:,} bytes and one ONNX file holds at most {MAX_BYTES:,}; "
                "expected 'auto' or True"
            )
        external = external_data is True or size > MAX_BYTES
        if external:
            self._write_data(model, tensors)
        else:
            fill(model, tensors)
            graph.check_model(model)
        _write(self.model, [model.SerializeToString(deterministic=True)])
        if external:
            graph.check_model(str(self.model))
            self._write_manifest()

    def write_as_it_is(self, model: onnx.ModelProto, folder: Path | None) -> None:
        """Write a model whose external data, if any, stands in `folder`; it gets that data under names of its own.

        A copy: neither another model's files nor ours can then be taken away from the other. (onnx refuses data with
        two hard links.)
        """
        names: dict[str, str] = {}
        for tensor in loading.tensors(model):
            for entry in tensor.external_data if tensor.data_location == tensor.EXTERNAL else ():
                if entry.key == "location":
                    if entry.value not in names:
                        names[entry.value] = self._take((folder or Path()) / entry.value)
                    entry.value = names[entry.value]
        _write(self.model, [model.SerializeToString(deterministic=True)])
        if names:
            self._write_manifest()

    def publish(self) -> None:
        """Move the files to their places: what the model reads, the model, the manifest; all, or none of them."""
        old = _old_data(self._goal)
        placed: list[Path] = []
        try:
            for path in self._data:
                goal = self._goal.with_name(path.name)
                if not goal.is_file() or _hash(goal) != _hash(path):  # an earlier export's is the same
                    self._place(path, goal, placed)
            self._place(self.model, self._goal, placed)
            if self._overwrite:
                placed.clear()  # the old model is gone: from here on it's the new one, whatever comes
            manifest = manifest_of(self._goal)
            if self._data:
                self._place(manifest_of(self.model), manifest, placed)
            elif self._overwrite:
                manifest.unlink(missing_ok=True)
        except BaseException:
            for goal in placed:
                goal.unlink(missing_ok=True)
            raise
        for path in old:
            if path.name not in {data.name for data in self._data}:
                path.unlink(missing_ok=True)

    def _place(self, source: Path, goal: Path, placed: list[Path]) -> None:
        new = not os.path.lexists(goal)
        if self._overwrite:
            os.replace(source, goal)
        else:
            _move_unless_there(source, goal)
        if new:
            placed.append(goal)

    def _take(self, path: Path) -> str:
        place = self.model.with_name(f"{self.model.name}.{_hash(path)[:12]}.data")
        if not place.exists():
            shutil.copyfile(path, place)
            self._data.append(place)
        return place.name

    def _write_data(self, model: onnx.ModelProto, tensors: Mapping[str, Array]) -> None:
        path = self.model.with_name("data")
        position, places = 0, {}

        def stream() -> Iterator[Any]:
            nonlocal position
            for name, array in tensors.items():
                gap = -position % _ALIGN
                yield bytes(gap)
                places[name] = position = position + gap
                position += array.nbytes
                yield from _pieces(array)

        digest = _write(path, stream())
        place = path.rename(path.with_name(f"{self.model.name}.{digest[:12]}.data"))
        self._data.append(place)
        for tensor in model.graph.initializer:
            tensor.data_location = tensor.EXTERNAL
            length = tensors[tensor.name].nbytes
            for key, value in (("location", place.name), ("offset", places[tensor.name]), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))

    def _write_manifest(self) -> None:
        files = [{"name": p.name, "size": p.stat().st_size, "sha256": _hash(p)} for p in (self.model, *self._data)]
        text = json.dumps({"format": 1, "files": files}, indent=2) + "\n"
        _write(manifest_of(self.model), [text.encode()])


def _write(path: Path, pieces: Any) -> str:
    """Write, flush to the disk, and return the SHA-256."""
    digest = hashlib.sha256()
    # Not tempfile, which makes files that only their owner can read.
    with open(path, "xb") as stream:
        for piece in pieces:
            stream.write(piece)
            digest.update(piece)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


def fill(model: onnx.ModelProto, tensors: Mapping[str, Array]) -> None:
    """Put the data of the initialisers into the model itself."""
    for tensor in model.graph.initializer:
        tensor.raw_data = b"".join(_pieces(tensors[tensor.name]))


def _pieces(array: Array) -> Iterator[Any]:
    """Little-endian bytes, a part at a time, without a copy of the whole."""
    flat = array.reshape(-1).view(f"u{array.dtype.itemsize}")
    step = _CHUNK // array.dtype.itemsize
    for start in range(0, flat.size, step):
        part: Any = flat[start : start + step].astype(f"<u{array.dtype.itemsize}", copy=False)
        yield memoryview(part).cast("B")


def _hash(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _old_data(goal: Path) -> list[Path]:
    """The data files that the manifest of an earlier export to `goal` lists, if their names are ours."""
    try:
        files = json.loads(manifest_of(goal).read_bytes())["files"]
        names = [str(file["name"]) for file in files]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    ours = re.compile(re.escape(goal.name) + r"\.[0-9a-f]{12}\.data")
    return [goal.with_name(name) for name in names if ours.fullmatch(name)]


def _move_unless_there(source: Path, goal: Path) -> None:
    try:
        os.link(source, goal)  # in one step, even if another process writes the same path
    except FileExistsError as error:
        raise _exists(goal) from error
    except OSError:  # a file system without hard links
        if os.path.lexists(goal):
            raise _exists(goal) from None
        os.replace(source, goal)
