"""Pictures, tables and results of the commands as files: all appear, whole, or none does; none is replaced unasked.

`check_folder`, `check_parent` and `check_file` come before the work that takes long, `write_all` after it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def check_parent(path: Path, option: str) -> None:
    """FileNotFoundError if there is no folder that `path` could be made in; `option` begins the message."""
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{option}: the folder {path.parent} doesn't exist")


def check_folder(folder: Path, option: str) -> None:
    """NotADirectoryError or FileNotFoundError unless it is a folder or can be made one by one mkdir."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{option}: {folder} is a file, expected a folder")
    check_parent(folder, option)


def check_file(path: Path, option: str, overwrite: bool) -> None:
    """IsADirectoryError, FileExistsError or, for a device, OSError, unless `path` is free or may be replaced."""
    if path.is_dir():
        raise IsADirectoryError(f"{option}: {path} is a folder, expected the name of a file")
    if path.exists() and not path.is_file():
        raise OSError(f"{option}: {path} is a device or a pipe, expected the name of a regular file")
    if os.path.lexists(path) and not overwrite:
        raise _exists(path, option)


def write_all(files: Mapping[Path, bytes], overwrite: bool, option: str = "--output") -> None:
    """Write all files, or none if one can't be: each is complete under another name before the first is moved.

    Parameters
    ----------
    files : mapping of Path to bytes
        Folders that are not there are made.
    overwrite : bool
    option : str
        Begins the message of an error.

    Raises
    ------
    FileExistsError
        If there is one already, and `overwrite` is false.
    """
    made = [folder for folder in dict.fromkeys(path.parent for path in files) if not folder.exists()]
    waiting: dict[Path, Path] = {}
    placed: list[Path] = []
    try:
        for folder in made:
            folder.mkdir()
        for path, content in files.items():
            temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
            waiting[path] = temporary
            temporary.write_bytes(content)
        for path, temporary in waiting.items():
            if overwrite:
                temporary.replace(path)
            else:
                _move_unless_there(temporary, path, option)
                placed.append(path)
    except BaseException:
        for path in placed:
            path.unlink(missing_ok=True)
        raise
    finally:
        for temporary in waiting.values():
            with contextlib.suppress(OSError):  # never made, its name being no name, for instance
                temporary.unlink()
        for folder in made:
            with contextlib.suppress(OSError):  # it holds something, as it should
                folder.rmdir()


def _move_unless_there(source: Path, goal: Path, option: str) -> None:
    try:
        os.link(source, goal)  # in one step, even if another process writes the same name
    except FileExistsError:
        raise _exists(goal, option) from None
    except OSError:  # a file system without hard links
        if os.path.lexists(goal):
            raise _exists(goal, option) from None
        source.replace(goal)


def _exists(path: Path, option: str) -> FileExistsError:
    return FileExistsError(f"{option}: {path} exists already; --overwrite replaces it")
