"""export_ffn: options are checked first, then the weights; the files appear only when they have been proven."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt

from gelu_fast.checks import form_number
from gelu_fast.export import graph, targets, writing
from gelu_fast.export.loading import load
from gelu_fast.export.report import ExportReport, VerificationError, VerifyReport
from gelu_fast.export.sources import Source, Stack, read_source
from gelu_fast.export.verify import check


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
    allow_nonfinite: bool = False,
    timing: bool = False,
) -> ExportReport:
    """Write GELU feed-forward blocks as an ONNX file and prove in onnxruntime that it computes them.

    A block computes ``gelu(x @ w1 + b1) @ w2 + b2``; several in a row make one model. The files are written beside
    `path` under temporary names and moved there only when everything held; the same source and options give the same
    bytes.

    Parameters
    ----------
    source : tuple, mapping, FeedForward, torch.nn.Module, Keras model, str or PathLike, or a sequence of these
        ``(w1, b1, w2, b2)`` with ``w1`` (in, hidden), ``b1`` (hidden,) or None, ``w2`` (hidden, out), ``b2``
        (out,) or None; or whatever else `gelu_fast.export.sources.read_source` takes.
    path : str or PathLike
        The .onnx file to write. Its directory must exist.
    approximate : {"none", "tanh", "quick"}, optional
        The formula. By default that of the source; ``"none"`` for arrays and files, which can't say.
    target : str, optional
        What the file must run on: ``"onnxruntime>=1.17"``, ``"onnxruntime==1.20"``, ``"onnxruntime-web"``, or
        ``"opset 17"``. By default the onnxruntime that is installed.
    form : {"auto", "native", "fusable", "contrib", "function", "primitive"}
        How GELU is spelled; see `gelu_fast.export.forms`. By default the quickest that the target runs.
    dtype : {"float32", "float64", "float16", "bfloat16"}, optional
        Converts the weights first. By default the model has the weights' own.
    dims : sequence of str
        Names of the input's leading axes, each dynamic: ``("batch",)`` for 2-D, ``("batch", "seq")`` for 3-D
        input.
    verify : bool
        Whether to run the file in onnxruntime and compare. If False, the report's `passed` is None.
    external_data : {"auto", True, False}
        Whether the weights stand in a file of their own, ``NAME.<hash>.data`` beside the model, with a manifest
        ``NAME.manifest.json`` of names, sizes and hashes. "auto": above 2 GiB, which one file can't hold.
    overwrite : bool
        Whether existing files may be replaced. A symbolic link is replaced, not followed.
    allow_nonfinite : bool
        Whether weights may hold nan or infinities.
    timing : bool
        Whether to measure the latency of each form that the target runs, at batch 1, 8 and 128.

    Returns
    -------
    ExportReport
        Errors, operators the runtime kept, size and SHA-256; ``print(report)`` shows a table.

    Raises
    ------
    VerificationError
        If the runtime's result is off by more than the arithmetic explains (see
        `gelu_fast.export.reference`); the report is attached, and no file is left.
    FileExistsError, FileNotFoundError, IsADirectoryError, PermissionError
        If `path` exists and `overwrite` is False, has no directory, is one, or can't be written.
    ValueError, TypeError
        If an argument or a tensor is wrong, or the target can't run the form; the message names it and what would do.
    ImportError
        If onnx or onnxruntime is missing; the message names the extra.
    """
    if approximate is not None:
        form_number(approximate)
    if external_data not in (True, False, "auto"):
        raise ValueError(f"external_data: expected 'auto', True or False, got {external_data!r}")
    wanted = _check_dtype(dtype)
    names = graph.check_dims(dims)
    targets.check(target, form)
    goal = writing.check_path(path, overwrite)
    if isinstance(source, (str, os.PathLike)) and goal.exists() and os.path.exists(source) and goal.samefile(source):
        raise ValueError(f"path: {goal} holds the weights, which are never changed; expected another name")
    stack = read_source(source, allow_nonfinite=allow_nonfinite)
    formula = _choose_formula(approximate, stack)
    served = stack if wanted is None else stack.astype(wanted)
    plan = targets.resolve(target, form, formula, _check_dtype(served.dtype) or "", len(names) + 1)
    model = graph.build_model(served, formula, plan, names)
    tensors = graph.stored(served)[0]
    with writing.staged(goal, overwrite) as stage:
        stage.write(model, tensors, external_data)
        found = load(stage.model)
        if verify:
            # The caller's own weights are the standard, not their conversion.
            report = check(found, stack, formula, timing=timing)
        else:
            report = VerifyReport.unverified(found, stack, formula)
        files = tuple(goal.parent / file.name for file in found.files)
        done = ExportReport(**{field.name: getattr(report, field.name) for field in fields(report)})
        done = replace(done, path=goal, files=files, manifest=found.manifest and writing.manifest_of(goal))
        if done.passed is False:
            raise VerificationError(done)
        stage.publish()
    return done


def _check_dtype(dtype: npt.DTypeLike | None) -> str | None:
    if dtype is None:
        return None
    try:
        name = "bfloat16" if dtype == "bfloat16" else np.dtype(dtype).name
    except TypeError as error:
        raise TypeError(f"dtype: expected None or one of {', '.join(targets.DTYPES)}, got {dtype!r}") from error
    if name not in targets.DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(targets.DTYPES)}, got {name}")
    return name


def _choose_formula(approximate: str | None, stack: Stack) -> str:
    if None not in (approximate, stack.approximate) and approximate != stack.approximate:
        raise ValueError(
            f"approximate: {approximate!r} was asked for, but the source's own GELU is {stack.approximate!r}"
        )
    return approximate or stack.approximate or "none"
