"""A model's outputs against the float64 blocks: row by row, at every optimisation level, and which formula they show.

A row is right if it is within what the dtype's arithmetic may be off (`gelu_fast.export.reference`). In float16 and
bfloat16 that is more than exact and tanh differ by. All outputs together still tell: with d the difference between the
two formulas and r that between the outputs and the expected formula, c = ⟨r, d⟩/⟨d, d⟩ is 0 for the one and 1 for the
other, give or take σ = rms(r − c·d)/(√N·rms(d)), which shrinks with the number N of outputs. With σ above `_UNSURE`
nothing is said.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gelu_fast.export.blocks import Array, Stack
from gelu_fast.export.reference import F64, Expected, expected, finfo
from gelu_fast.export.report import Level
from gelu_fast.export.runtime import LEVELS, Program, Runner, hard_rows

BATCHES = (0, 1, 7, 33)
_INNER = 3  # length of every further leading axis
_UNSURE = 0.1
_BELOW_MAX = 34.0  # rows that come so near the dtype's largest value may overflow in a right model


@dataclass(frozen=True)
class Outputs:
    """What the model gave, and what it should have given.

    Attributes
    ----------
    x : (rows, in) array
    y : (rows, out) float64 array
        At the first level that is wrong, or the last.
    target : Expected
    usable : (rows,) bool array
        Rows that don't come near overflow.
    """

    x: Array
    y: F64
    target: Expected
    usable: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Comparison:
    """The errors of `VerifyReport`, the leading shapes run, the levels, and what didn't hold.

    `untold` are the formulas that the outputs can't be told from; `finite` says whether all weights are.
    """

    max_abs: float
    max_rel: float
    ratio: float
    batches: tuple[tuple[int, ...], ...]
    levels: tuple[Level, ...]
    failures: tuple[str, ...]
    untold: tuple[str, ...]
    outputs: Outputs
    finite: bool


def compare(program: Program, stack: Stack, formula: str, rank: int, dtype: np.dtype[Any], seed: int) -> Comparison:
    """Run a model at every level of graph optimisation and judge its outputs.

    Parameters
    ----------
    program : Program
    stack : Stack
        The blocks that it should be.
    formula : {"none", "tanh", "quick"}
    rank : int
        Number of leading axes.
    dtype : dtype
        Of the model's input.
    seed : int
    """
    rng = np.random.default_rng(seed)
    inner = (_INNER,) * (rank - 1)
    shapes = [(rows, *inner) for rows in BATCHES]
    if inner:
        shapes.append((2, *(0,) * (rank - 1)))
    inputs = [rng.standard_normal((*shape, stack.in_features)).astype(dtype) for shape in shapes]
    hard = hard_rows(stack, dtype, rng)
    inputs.append(hard.reshape(len(hard), *(1,) * (rank - 1), stack.in_features))
    rows = np.concatenate([x.reshape(-1, stack.in_features) for x in inputs])
    target = expected(stack, rows, formula)
    with np.errstate(invalid="ignore"):
        near = np.abs(target.y[formula]).max(axis=1) < float(finfo(dtype).max) / _BELOW_MAX
    usable = np.isfinite(target.allowed) & near
    finite = all(bool(np.isfinite(array).all()) for array in stack.tensors.values())
    ordinary = usable & (np.arange(len(rows)) < len(rows) - len(hard))
    levels, texts = [], {}
    max_abs, max_rel, most = float("nan"), 0.0, 0.0
    shown = Outputs(rows, np.empty(0), target, usable)
    untold: tuple[str, ...] = ()
    for name in LEVELS:
        with tempfile.TemporaryDirectory(prefix="gelu-fast-") as folder:
            run = Runner(program, name, profile=Path(folder))
            kept = run.look(inputs[1])
        y = _run_all(run, inputs, stack.out_features)
        found, told = _judge(y, target, formula, usable) if finite else (_judge_nan(y, target.y[formula]), ())
        texts[name] = found.texts
        levels.append(Level(name, found.ratio, *kept))
        if ordinary.any():
            max_abs = float(np.fmax(max_abs, found.error[ordinary].max()))
        max_rel, most = float(np.maximum(max_rel, found.relative)), float(np.maximum(most, found.ratio))
        if not any(list(texts.values())[:-1]):  # the first that's wrong is kept
            shown = Outputs(rows, y, target, usable)
        untold = told
    batches = tuple(x.shape[:-1] for x in inputs)
    return Comparison(max_abs, max_rel, most, batches, tuple(levels), _merge(texts), untold, shown, finite)


def _run_all(run: Runner, inputs: list[Array], out_features: int) -> F64:
    got = []
    for x in inputs:
        y, want = run(x), (*x.shape[:-1], out_features)
        if y.shape != want:
            raise ValueError(f"path_or_model: for input {x.shape} the output is {y.shape}, expected {want}")
        got.append(y.reshape(-1, out_features))
    return np.concatenate(got).astype(np.float64)


@dataclass(frozen=True)
class _Verdict:
    error: F64
    relative: float
    ratio: float
    texts: list[str]


def _judge(y: F64, target: Expected, formula: str, usable: npt.NDArray[np.bool_]) -> tuple[_Verdict, tuple[str, ...]]:
    if not usable.any():
        text = "the block overflows the dtype, or is nan, for every input tried"
        return _Verdict(np.full(len(y), np.inf), np.inf, np.inf, [text]), ()
    want = target.y[formula]
    with np.errstate(invalid="ignore"):
        error = np.abs(y - want).max(axis=1)
    error[np.isnan(error)] = np.inf
    size = np.abs(want[usable]).max(axis=1)
    relative = np.divide(error[usable], size, out=np.where(error[usable] > 0, np.inf, 0.0), where=size > 0)
    ratio = float((error[usable] / target.allowed[usable]).max())
    texts = [f"the outputs differ by {ratio:.3g} times what the dtype's arithmetic may"] if ratio > 1 else []
    shown, untold = _formula(y[usable], target, formula, usable)
    if shown != formula:
        texts.append(f"the outputs are those of the {shown!r} formula, expected {formula!r}")
    return _Verdict(error, float(relative.max()), ratio, texts), untold


def _judge_nan(y: F64, want: F64) -> _Verdict:
    """Weights that hold nan or infinities leave no number to compare, but an output that should be none mustn't be one.

    The other way round isn't asked for: onnxruntime's gelu(-inf) is nan.
    """
    wrong = int((np.isfinite(y) & ~np.isfinite(want)).sum())
    texts = [f"{wrong} of {y.size} outputs are numbers, and should be nan or infinite"] if wrong else []
    return _Verdict(np.full(len(y), np.nan), np.nan, np.nan, texts)


def _formula(y: F64, target: Expected, formula: str, usable: npt.NDArray[np.bool_]) -> tuple[str, tuple[str, ...]]:
    """The formula that all outputs together show, and those that can't be told from the expected one."""
    if not np.isfinite(y).all():
        return formula, ()
    # In units of the row's own noise, or rows 100 times too large would drown those that tell formulas apart.
    noise = target.allowed[usable, None]
    with np.errstate(over="ignore", invalid="ignore"):
        r = (y - target.y[formula][usable]) / noise
        apart = {
            name: (v[usable] - target.y[formula][usable]) / noise for name, v in target.y.items() if name != formula
        }
    shown, least, untold = formula, float(np.linalg.norm(r)), []
    own = least
    for name, d in apart.items():
        square = float((d * d).sum())
        share = float((r * d).sum()) / square if square > 0 else 0.0
        unsure = float(np.linalg.norm(r - share * d)) / np.sqrt(d.size * square) if square > 0 else np.inf
        if not unsure < _UNSURE:
            untold.append(name)
        left = float(np.linalg.norm(r - d))
        explained = left < 0.5 * own or np.abs(r - d).max() <= 1
        if unsure < _UNSURE and share > 0.5 and explained and left < least:
            shown, least = name, left
    return shown, tuple(untold)


def _merge(texts: dict[str, list[str]]) -> tuple[str, ...]:
    """One text for all levels, or one per level that differs."""
    every = list(texts.values())
    if all(len(found) == len(every[0]) for found in every):
        return tuple(every[-1])
    return tuple(f"{text} (optimisation {level!r})" for level, found in texts.items() for text in found)
