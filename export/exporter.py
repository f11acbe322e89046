"""export_ffn: options are checked first, then the weights; the file appears only when it has been proven."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gelu_fast.export import graph
from gelu_fast.export.report import ExportReport, VerificationError
from gelu_fast.export.sources import Block, Source, read_source
from gelu_fast.export.verify import check
from gelu_fast.forms import FORMS

_FLOAT32 = np.dtype(np.float32)
_KNOWN_TARGETS = re.compile(r"opset \d+|onnxruntime(-web)?|onnxruntime(>=|==)\d+(\.\d+)*")


def export_ffn(
    source: Source,
    path: str | os.PathLike[str],
    *,
    approximate: str | None = None,
    target: str | None = None,
    form: str = "auto",
    dtype: npt.DTypeLike | None = None,
    dims: Sequence[str] = ("batch",),
    verify: bool = True,
    external_data: str | bool = "auto",
    overwrite: bool = False,
) -> ExportReport:
    """Write a GELU feed-forward block as an ONNX file and prove in onnxruntime that it computes the block.

    The model computes ``gelu(x @ w1 + b1) @ w2 + b2``. It is written beside `path` under a temporary name and
    moved there only when everything held; the same source and options give the same bytes.

    Parameters
    ----------
    source : tuple, mapping, torch.nn.Module, str or PathLike
        ``(w1, b1, w2, b2)`` with ``w1`` (in, hidden), ``b1`` (hidden,) or None, ``w2`` (hidden, out), ``b2``
        (out,) or None; a module with children ``fc1`` (nn.Linear), ``act`` (nn.GELU), ``fc2`` (nn.Linear), or
        ``nn.Sequential(Linear, GELU, Linear)``; the path of an .npz or .safetensors file with tensors ``w1 b1
        w2 b2`` or ``fc1.weight fc1.bias fc2.weight fc2.bias`` (PyTorch's orientation); or a mapping with
        these names.
    path : str or PathLike
        The .onnx file to write. Its directory must exist.
    approximate : {"none", "tanh"}, optional
        The formula. By default that of the module's nn.GELU; ``"none"`` for arrays and files. ``"quick"`` has
        no standard ONNX operator and isn't served yet.
    target : str, optional
        What the file must run on; today only None or ``"opset 20"``.
    form : {"auto", "native"}
        How GELU is spelled; today both mean the standard Gelu operator.
    dtype : dtype, optional
        Converts the weights first; today only float32. By default the weights must be float32 already.
    dims : sequence of str
        Names of the input's leading axes, each dynamic: ``("batch",)`` for 2-D, ``("batch", "seq")`` for 3-D
        input.
    verify : bool
        Whether to run the file in onnxruntime and compare. If False, the report's `passed` is None.
    external_data : {"auto", False}
        Today the weights always stand in the file itself, which holds up to 2 GiB.
    overwrite : bool
        Whether an existing file may be replaced.

    Returns
    -------
    ExportReport
        Errors, operators the runtime kept, size and SHA-256; ``print(report)`` shows a table.

    Raises
    ------
    VerificationError
        If the runtime's result is off by more than float32 arithmetic explains (see
        `gelu_fast.export.reference`); the report is attached, and no file is left.
    FileExistsError, FileNotFoundError, IsADirectoryError, PermissionError
        If `path` exists and `overwrite` is False, has no directory, is one, or can't be written.
    ValueError, TypeError
        If an argument or a tensor is wrong; the message names it.
    NotImplementedError
        If an argument asks for what isn't served yet; the message says what is.
    ImportError
        If onnx or onnxruntime is missing; the message names the extra.
    """
    _check_options(target, form, external_data)
    names = graph.check_dims(dims)
    goal = _check_path(path, overwrite)
    block = read_source(source)
    formula = _choose_formula(approximate, block)
    served = _choose_dtype(block, dtype)
    model = graph.build_model(served, formula, names)
    payload: bytes = model.SerializeToString(deterministic=True)
    with _written(payload, goal) as temporary:
        if verify:
            # The caller's own weights are the standard, not their conversion.
            found = check(model, payload, temporary, block, formula)
            report = ExportReport(**{field.name: getattr(found, field.name) for field in fields(found)})
            report = replace(report, path=goal, files=(goal,))
            if not report.passed:
                raise VerificationError(report)
        else:
            report = _unverified(payload, goal, formula, names, block)
        if not overwrite and os.path.lexists(goal):  # made by another process meanwhile
            raise _exists(goal)
        os.replace(temporary, goal)
    return report


def _check_options(target: Any, form: Any, external_data: Any) -> None:
    if target is not None and target != f"opset {graph.OPSET}":
        if isinstance(target, str) and _KNOWN_TARGETS.fullmatch(target):
            raise NotImplementedError(
                f"target: {target!r} isn't served yet; today only None or 'opset {graph.OPSET}' are"
            )
        raise ValueError(f"target: expected None or 'opset {graph.OPSET}', got {target!r}")
    if form not in ("auto", "native"):
        raise ValueError(f"form: expected 'auto' or 'native' (others aren't served yet), got {form!r}")
    if external_data is True:
        raise NotImplementedError("external_data: True isn't served yet; 'auto' and False write one file up to 2 GiB")
    if external_data is not False and external_data != "auto":
        raise ValueError(f"external_data: expected 'auto' or False, got {external_data!r}")


def _check_path(path: Any, overwrite: bool) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise TypeError(f"path: expected the name of a file, got {path!r}")
    goal = Path(os.fspath(path))
    if goal.is_dir():
        raise IsADirectoryError(f"path: {goal} is a directory, expected a file name")
    if not goal.parent.is_dir():
        raise FileNotFoundError(f"path: the directory {goal.parent} doesn't exist")
    if os.path.lexists(goal) and not overwrite:
        raise _exists(goal)
    return goal


def _exists(goal: Path) -> FileExistsError:
    return FileExistsError(f"path: {goal} exists already; overwrite=True (--overwrite) replaces it")


def _choose_formula(approximate: Any, block: Block) -> str:
    if approximate is not None and approximate not in FORMS:
        raise ValueError(
            f"approximate: expected 'none' or 'tanh', got {approximate!r}; gelu_fast.forms.resolve "
            "translates other libraries' names"
        )
    if None not in (approximate, block.approximate) and approximate != block.approximate:
        raise ValueError(
            f"approximate: {approximate!r} was asked for, but the source's own GELU is {block.approximate!r}"
        )
    formula: str = approximate or block.approximate or "none"
    if formula == "quick":
        raise ValueError("approximate: 'quick' has no standard ONNX operator; expected 'none' or 'tanh'")
    return formula


def _choose_dtype(block: Block, dtype: npt.DTypeLike | None) -> Block:
    if dtype is not None:
        try:
            wanted = np.dtype(dtype)
        except TypeError as error:
            raise TypeError(f"dtype: expected None or 'float32', got {dtype!r}") from error
        if wanted != _FLOAT32:
            raise NotImplementedError(f"dtype: {wanted} isn't served yet; today only 'float32' is")
        return block.astype(_FLOAT32)
    if block.dtype != _FLOAT32:
        # float64: Gelu expands to Erf, which has no float64 kernel; the tanh expansion runs, but with float32
        # constants, 1.5e-9 off. float16: runs in float32 behind Casts, too coarse to tell exact from tanh.
        raise NotImplementedError(
            f"source: {block.dtype} weights aren't served yet, since onnxruntime's Gelu can't be proven in "
            "that type; dtype='float32' (--dtype float32) converts them"
        )
    return block


@contextlib.contextmanager
def _written(payload: bytes, goal: Path) -> Any:
    """The payload in a temporary file beside the goal, which is gone afterwards unless it was moved."""
    name = goal.parent / f".{goal.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        # Not tempfile, which makes files that only their owner can read.
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise type(error)(error.errno, f"path: can't write in {goal.parent}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(payload)
            stream.flush()
            os.fsync(stream.fileno())
        yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _unverified(payload: bytes, goal: Path, formula: str, dims: tuple[str, ...], block: Block) -> ExportReport:
    return ExportReport(
        passed=None, formula=formula, form="native", opset=graph.OPSET, ir_version=graph.IR_VERSION,
        max_abs_error=None, max_rel_error=None, error_over_allowed=None, operators=(), runtime="",
        path=goal, files=(goal,), size=len(payload), sha256=hashlib.sha256(payload).hexdigest(), dims=dims,
        features=(block.in_features, block.hidden_features, block.out_features), batches=(),
    )  # fmt: skip
