"""onnxruntime-web from npm, for `gelu-fast export --page`: the only place of the package that uses the network.

One release, by its hash: the same page comes out whoever is asked for it. ``npm pack`` downloads the package alone, not
what it depends on, which the build that the page uses has inside, and runs no scripts. Its proxy and registry are those
that the user's npm is set to.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gelu_fast.export.page import RUNTIME_FILES

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
# As npm's own lock files state it.
SHA512 = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
_MEMBERS = ("package/package.json", *(f"package/dist/{name}" for name in RUNTIME_FILES))


@contextmanager
def onnxruntime_web(say: Callable[[str], None]) -> Iterator[Path]:
    """A folder with the package's files that a page needs; gone afterwards.

    Parameters
    ----------
    say : callable
        Told what is about to be run, before it is.

    Raises
    ------
    FileNotFoundError
        If there is no npm.
    ValueError
        If npm fails, with what it said, or gives another package than the one that is known here.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(
            f"--page: {PACKAGE} comes from npm, which isn't on the PATH: install npm, or pass --onnxruntime-web FOLDER "
            f"with a copy of the package {PACKAGE}@{VERSION}"
        )
    with tempfile.TemporaryDirectory(prefix="gelu-fast-npm-") as name:
        folder = Path(name)
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--ignore-scripts", "--loglevel=error"]
        say(f"fetching {PACKAGE} {VERSION}: {' '.join(['npm', *command[1:]])}")
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        packed = list(folder.glob("*.tgz"))
        if done.returncode or len(packed) != 1:
            lines = [line.removeprefix("npm error ").strip() for line in done.stderr.splitlines()]
            said = "; ".join([line for line in lines if line and not line.startswith("at ")][:4])  # no JavaScript stack
            said = said or f"exit code {done.returncode}, no package"
            raise ValueError(f"--page: npm pack {PACKAGE}@{VERSION} failed: {said}")
        yield unpack(packed[0], folder / "package", SHA512)


def unpack(archive: Path, folder: Path, sha512: str) -> Path:
    """Write the members that a page needs to `folder`, if the archive has the hash (base64); the folder."""
    with archive.open("rb") as stream:
        found = base64.b64encode(hashlib.file_digest(stream, "sha512").digest()).decode()
    if found != sha512:
        raise ValueError(f"--page: npm gave a {PACKAGE} {VERSION} of sha512 {found}, expected {sha512}")
    with tarfile.open(archive) as package:
        for name in _MEMBERS:
            member = package.extractfile(name)
            if member is None:
                raise ValueError(f"--page: {PACKAGE} {VERSION} has no file {name}")
            goal = folder / name.removeprefix("package/")
            goal.parent.mkdir(parents=True, exist_ok=True)
            with member, goal.open("wb") as out:
                shutil.copyfileobj(member, out)
    return folder
