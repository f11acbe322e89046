"""`export_page`: a folder that shows an exported model at work in a browser.

The folder holds the model, stored inputs with the float64 answers (`gelu_fast.export.reference`, which the exporter
has no part in) and how far each row may be off, onnxruntime-web, and a page that puts them together: parity, latency,
the graph. Any web server will do, ``python -m http.server`` too; the page's own policy forbids it every other host.

onnxruntime-web comes from a folder that the caller names. The library fetches nothing; `gelu-fast export --page` may
(`gelu_fast.cli.npm`), and says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from importlib import resources
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from gelu_fast.export import graph, targets
from gelu_fast.export.blocks import Array, Stack
from gelu_fast.export.forms import FLOATS
from gelu_fast.export.loading import Loaded, load
from gelu_fast.export.own_weights import stack_of
from gelu_fast.export.page_graph import describe
from gelu_fast.export.reference import expected
from gelu_fast.export.report import VerifyReport
from gelu_fast.export.runtime import hard_rows
from gelu_fast.export.sources import Source, read_source

FORMAT = 1
# What the page asks of the package; the one build that runs on the CPU alone.
RUNTIME_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
_ROWS = (1, 8, 64)
_INNER = 4  # length of every further leading axis
_MOST = 2**31  # WebAssembly has 4 GiB, and the model is in it twice while it loads
_DTYPES = {"float32", "float64", "float16"}


def export_page(
    report_or_path: VerifyReport | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    onnxruntime_web: str | PathLike[str],
    source: Source | None = None,
    x: Any = None,
    seed: int = 0,
    overwrite: bool = False,
) -> Path:
    """Make a folder with a page that runs a model in the browser and shows parity, latency and the graph.

    Parameters
    ----------
    report_or_path : ExportReport, str or PathLike
        The model: what `export_ffn` returned, or the .onnx file. float32, float64 or float16.
    folder : str or PathLike
        To be made; an empty one will do. It appears whole or not at all.
    onnxruntime_web : str or PathLike
        The npm package, or the node_modules that it's in: ``npm install onnxruntime-web`` makes one. Three of its files
        are copied.
    source : tuple, mapping, FeedForward, torch.nn.Module, Keras model, str or PathLike, optional
        The blocks that the model should compute, as for `export_ffn`. By default the weights that stand in the file,
        which must then be one that `export_ffn` wrote: that shows that the browser computes it, not that it holds the
        right weights, and the page says so.
    x : array_like, shape (..., in), optional
        The inputs to store, of as many axes as the model's. By default 1, 8 and 64 rows of N(0, 1), and some chosen to
        hurt.
    seed : int
        Of these rows.
    overwrite : bool
        Whether a folder that holds an earlier page may be replaced. Another that isn't empty never is.

    Returns
    -------
    Path
        The index.html.

    Raises
    ------
    FileExistsError, FileNotFoundError
        If the folder exists, or the model or onnxruntime-web isn't where it should be.
    ValueError, TypeError
        If an argument is wrong, or onnxruntime-web can't run the model; says what would do.
    """
    path = report_or_path.path if isinstance(report_or_path, VerifyReport) else report_or_path
    if not isinstance(path, (str, PathLike)):
        raise TypeError(f"report_or_path: expected a report of an export, or a path, got {type(path).__name__}")
    goal = check_folder(folder, overwrite)
    runtime, version = _find_runtime(Path(fspath(onnxruntime_web)))
    loaded = load(path)
    _check_runs(loaded, version)
    stack = stack_of(loaded) if source is None else read_source(source)
    if stack is None:
        raise ValueError(f"source: expected the model's blocks, since {loaded.name} isn't one that export_ffn wrote")
    formula = _formula(loaded, stack)
    dtype, shape = _interface(loaded, stack)
    batches = _batches(stack, dtype, len(shape), x, seed)
    with _staged(goal) as stage:
        for file in loaded.files:
            shutil.copyfile(file, stage / file.name)
        (stage / "onnxruntime-web").mkdir()
        for name in (*RUNTIME_FILES, "../package.json"):
            shutil.copyfile(runtime / "dist" / name, stage / "onnxruntime-web" / Path(name).name)
        for template in resources.files("gelu_fast.export").joinpath("page_files").iterdir():
            if template.name.endswith((".html", ".css", ".mjs")):
                (stage / template.name).write_bytes(template.read_bytes())
        found = _describe(loaded, stack, formula, dtype, source is None, version)
        found["cases"] = [
            _write_case(stage, index, batch, stack, formula) for index, batch in enumerate(batches.items())
        ]
        text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
        (stage / "page.json").write_text(text, "utf-8")
    return goal / "index.html"


def check_folder(folder: Any, overwrite: bool) -> Path:
    """The path of a folder that may be made; raises as `export_page` says."""
    if not isinstance(folder, (str, PathLike)) or not fspath(folder):
        raise TypeError(f"folder: expected the name of a folder, got {folder!r}")
    goal = Path(os.path.abspath(os.fsdecode(fspath(folder))))
    if not goal.parent.is_dir():
        raise FileNotFoundError(f"folder: the directory {goal.parent} doesn't exist")
    if not os.path.lexists(goal) or (goal.is_dir() and not any(goal.iterdir())):
        return goal
    if not goal.is_dir():
        raise FileExistsError(f"folder: {goal} exists and is no directory")
    if not _is_page(goal):
        raise FileExistsError(f"folder: {goal} holds other files than a page's; expected a new or empty folder")
    if not overwrite:
        raise FileExistsError(f"folder: {goal} exists already; overwrite=True (--overwrite) replaces it")
    return goal


def _is_page(folder: Path) -> bool:
    try:
        return isinstance(json.loads((folder / "page.json").read_text("utf-8"))["gelu_fast_page"], int)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _find_runtime(given: Path) -> tuple[Path, str]:
    """The package's folder and version."""
    places = [given, given / "onnxruntime-web", given / "node_modules" / "onnxruntime-web"]
    for place in places:
        try:
            said = json.loads((place / "package.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if not isinstance(said, dict) or said.get("name") != "onnxruntime-web":
            continue
        lacking = [name for name in RUNTIME_FILES if not (place / "dist" / name).is_file()]
        if lacking:
            raise FileNotFoundError(f"onnxruntime_web: {place / 'dist'} lacks {', '.join(lacking)}")
        return place, str(said.get("version", ""))
    raise FileNotFoundError(
        f"onnxruntime_web: no npm package onnxruntime-web in {given}; `npm install --ignore-scripts onnxruntime-web` "
        "there makes node_modules with it"
    )


def _check_runs(loaded: Loaded, version: str) -> None:
    if loaded.size >= _MOST:
        raise ValueError(f"report_or_path: {loaded.name} has {loaded.size:,} bytes, a page takes less than {_MOST:,}")
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:2] if part.isdigit())
    rows = [row for row in targets.RUNTIMES if row.name == "onnxruntime-web" and row.version >= numbers]
    if not numbers or not rows:
        return  # newer than what was measured: the page will tell
    opset = max((entry.version for entry in loaded.model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset > rows[0].opset or loaded.model.ir_version > rows[0].ir_version:
        raise ValueError(
            f"report_or_path: {loaded.name} has opset {opset} and IR {loaded.model.ir_version}; onnxruntime-web "
            f"{version} reads up to {rows[0].opset} and {rows[0].ir_version}; export with target='onnxruntime-web'"
        )


def _formula(loaded: Loaded, stack: Stack) -> str:
    stated = next((e.value for e in loaded.model.metadata_props if e.key == "gelu_fast.formula"), None)
    if stated not in (None, *graph.FORMULAS):
        raise ValueError(f"report_or_path: {loaded.name} states the formula {stated!r}, expected none, tanh or quick")
    if None not in (stated, stack.approximate) and stated != stack.approximate:
        raise ValueError(f"source: its GELU is {stack.approximate!r}, the model's {stated!r}")
    return stated or stack.approximate or "none"


def _interface(loaded: Loaded, stack: Stack) -> tuple[np.dtype[Any], list[str]]:
    """The dtype, and the names of the input's axes."""
    model = loaded.model.graph
    stored = {tensor.name for tensor in model.initializer}
    inputs = [value for value in model.input if value.name not in stored]
    if len(inputs) != 1 or len(model.output) != 1:
        raise ValueError(
            f"report_or_path: expected one input and one output, got {len(inputs)} and {len(model.output)}"
        )
    for value, features in ((inputs[0], stack.in_features), (model.output[0], stack.out_features)):
        axes = value.type.tensor_type.shape.dim
        fixed = [axis.dim_value for axis in axes[:-1] if axis.HasField("dim_value")]
        if len(axes) < 2 or axes[-1].dim_value not in (0, features) or fixed:
            shape = [axis.dim_value or axis.dim_param or "?" for axis in axes]
            raise ValueError(
                f"report_or_path: {value.name!r}: expected shape (…, {features}) with dynamic leading axes, got {shape}"
            )
    kinds = [FLOATS.get(value.type.tensor_type.elem_type, "another type") for value in (inputs[0], model.output[0])]
    if kinds[0] not in _DTYPES or kinds[0] != kinds[1]:
        raise ValueError(f"report_or_path: {loaded.name} goes from {kinds[0]} to {kinds[1]}; a page runs "
                         f"{', '.join(sorted(_DTYPES))}")  # fmt: skip
    axes = inputs[0].type.tensor_type.shape.dim
    return np.dtype(kinds[0]), [axis.dim_param or str(axis.dim_value or "?") for axis in axes]


def _batches(stack: Stack, dtype: np.dtype[Any], rank: int, x: Any, seed: int) -> dict[str, tuple[Array, bool]]:
    """Labels to (input, whether its latency is measured)."""
    if x is not None:
        given = np.asarray(x)
        if given.ndim != rank or given.shape[-1] != stack.in_features or not given.size:
            raise ValueError(f"x: expected {rank} axes, the last of {stack.in_features}, got shape {given.shape}")
        if given.dtype.kind not in "fiub" or not np.can_cast(given.dtype, dtype, "same_kind"):
            raise TypeError(f"x: expected {dtype} or what converts to it, got {given.dtype}")
        with np.errstate(over="ignore"):
            stored = given.astype(dtype)
        if not np.isfinite(stored).all():
            raise ValueError(f"x: expected values finite in {dtype}")
        return {"given input": (stored, True)}
    rng = np.random.default_rng(seed)
    found: dict[str, tuple[Array, bool]] = {}
    for rows in _ROWS:
        shape = (rows, *(_INNER,) * (rank - 2), stack.in_features)
        label = f"N(0, 1), {' × '.join(map(str, shape[:-1]))} row{'' if rows == 1 and rank == 2 else 's'}"
        found[label] = rng.standard_normal(shape).astype(dtype), True
    hard = hard_rows(stack, dtype, rng)
    return found | {"rows chosen to hurt": (hard.reshape(len(hard), *(1,) * (rank - 2), -1), False)}


def _write_case(
    stage: Path, index: int, batch: tuple[str, tuple[Array, bool]], stack: Stack, formula: str
) -> dict[str, Any]:
    label, (x, timed) = batch
    rows = x.reshape(-1, x.shape[-1])
    truth = expected(stack, rows, formula)
    (stage / "cases").mkdir(exist_ok=True)
    # A row that may overflow in a right model tells nothing: nan, and the page counts them.
    usable = np.isfinite(truth.allowed) & (np.abs(truth.y[formula]).max(axis=1) < float(np.finfo(x.dtype).max) / 34)
    if not usable.any():
        raise ValueError(f"x: every row of {label!r} comes near {x.dtype}'s overflow, so none can be judged")
    entry = {"label": label, "timed": timed, "shape": list(x.shape), "features": stack.out_features}
    for name, array, kind in (
        ("x", x, x.dtype.newbyteorder("<")), ("y", truth.y[formula], "<f8"),
        ("allowed", np.where(usable, truth.allowed, np.nan), "<f8"),
    ):  # fmt: skip
        entry[name] = f"cases/{index}.{name}.bin"
        (stage / str(entry[name])).write_bytes(array.astype(kind).tobytes())
    return entry


def _describe(
    loaded: Loaded, stack: Stack, formula: str, dtype: np.dtype[Any], own: bool, version: str
) -> dict[str, Any]:
    report = VerifyReport.unverified(loaded, stack, formula)
    model = loaded.files[0]
    return {
        "gelu_fast_page": FORMAT,
        "model": model.name,
        "data": [file.name for file in loaded.files[1:]],
        "sha256": loaded.sha256,
        "size": loaded.size,
        "formula": formula,
        "formula_text": graph.FORMULAS[formula],
        "form": report.form,
        "opset": report.opset,
        "ir_version": report.ir_version,
        "dtype": dtype.name,
        "features": list(report.features),
        "input": next(v.name for v in loaded.model.graph.input if v.name not in _stored(loaded)),
        "output": loaded.model.graph.output[0].name,
        "oracle": "float64, of the weights that stand in the file" if own else "float64, of the source's own weights",
        "runtime": version,
        "producer": f"gelu_fast {graph.package_version()}",
        "graph": describe(loaded.model),
    }


def _stored(loaded: Loaded) -> set[str]:
    return {tensor.name for tensor in loaded.model.graph.initializer}


@contextlib.contextmanager
def _staged(goal: Path) -> Iterator[Path]:
    """A folder beside `goal` that takes its place at the end; gone if anything fails."""
    stage = goal.with_name(f".{goal.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    old = stage.with_suffix(".old")
    try:
        stage.mkdir()
    except OSError as error:
        raise type(error)(error.errno, f"folder: can't write in {goal.parent}: {error.strerror}") from error
    try:
        yield stage
        if goal.exists():
            goal.rename(old)
        try:
            stage.rename(goal)
        except BaseException:  # Ctrl-C too
            if old.exists():
                old.rename(goal)
            raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
