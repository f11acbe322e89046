"""The feed-forward blocks in float64, and how far a dtype's arithmetic may stray from it.

Nothing here uses gelu_fast's kernels: it is what exported models are judged by. The exact form goes through
C's ``erfc``; the two sigmoid forms through NumPy's float64 ``exp``.

The tolerance
-------------
No fixed number is right. Measured over blocks from 1 to 16,384 wide, onnxruntime's error in units of
2⁻²⁴·Σ|terms| was 0.1 for random weights and 60 for constant ones, where every addition rounds the same way. A
bound that admits the second hides a wrong formula in the first. So the blocks are computed once more in
the plainest arithmetic of their dtype, term after term, and row i of the output may be off by at most

    4 · (e_i + s_i · (r + u)),    s_i = max over outputs of (Σ|h|·|w2| + |b2|),    r = rms over rows of e_i / s_i

with e_i the largest error of the plain row, h the last hidden layer before GELU and u the relative error of one
rounding. r covers the rows whose plain sum came out right by luck, u the blocks whose sums are all exact and a GELU
that errs by a few roundings. In a stack both grow by what the blocks before hand on: s_i by √(s² @ w1² @ w2²), as
independent errors add up, and e_i by the change of the output when every GELU but the last is u·|h| too large, since
runtimes' kernels err to one side, and positive weights add that up: without it a right stack of six such blocks used
1.09 of its allowance.

Measured in float32 on seven kinds of weights (random, constant, positive, ternary, tiny, large, zero) and eight shapes
up to 512→2048→512: a right model uses at most 0.52 of this, 0.05 for random weights of that size; the other formula
exceeds it 1.8 to 460 times (20 for random weights of that size), unless the weights are so large that every hidden
value saturates and the formulas agree.

What "plain" means depends on the dtype. float32, float64: every product and sum is rounded (float64 is compared with
float64, so e_i holds the oracle's own rounding too). float16, bfloat16: sums in float32, and each node's output
(product, bias, GELU) rounded to the dtype, the coarsest that a runtime without kernels for them does.
onnxruntime 1.32 is finer: it runs the whole chain in float32 between a Cast at the input and one at the output. So in
the 16-bit types row by row a right model and one of the other formula both pass; what tells them apart are all
outputs together and the activation alone (`gelu_fast.export.verify`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gelu_fast.export.blocks import Array, Block, Stack
from gelu_fast.forms import FORMS, QUICK_SLOPE, TANH_CUBIC

F64 = npt.NDArray[np.float64]

MARGIN = 4.0
_CHUNK = 1 << 20  # weights held in float64 at a time, so that checking a large block doesn't triple its memory

_erfc = np.frompyfunc(math.erfc, 1, 1)


def finfo(dtype: npt.DTypeLike) -> Any:
    """`numpy.finfo`, of bfloat16 too."""
    dtype = np.dtype(dtype)
    if dtype.name != "bfloat16":
        return np.finfo(dtype)
    ml_dtypes: Any = importlib.import_module("ml_dtypes")  # there is a bfloat16 dtype, so it has been imported
    return ml_dtypes.finfo(dtype)


def unit(dtype: npt.DTypeLike) -> float:
    """The relative error of one rounding: 2⁻²⁴ in float32."""
    return float(finfo(dtype).eps) / 2


def gelu64(x: F64, form: str) -> F64:
    """GELU of a float64 array, by the formulas in `gelu_fast.forms`.

    Parameters
    ----------
    x : float64 array, any shape
        −inf gives −0.0, the limit; nan stays.
    form : {"none", "tanh", "quick"}

    Returns
    -------
    float64 array of the same shape
    """
    if form not in FORMS:
        raise ValueError(f"form: expected one of {FORMS}, got {form!r}")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if form == "none":
            y = 0.5 * x * np.asarray(_erfc(-x * math.sqrt(0.5)), np.float64)
        else:  # exp(-y) = inf is the right limit: x / inf = -0
            slope = 2 * math.sqrt(2 / math.pi) * (1 + TANH_CUBIC * x * x) if form == "tanh" else QUICK_SLOPE
            y = x / (1 + np.exp(-slope * x))
    return np.asarray(np.where(x == -np.inf, -0.0, y), np.float64)


@dataclass(frozen=True)
class Expected:
    """What a block must give for some rows.

    Attributes
    ----------
    y : dict of form to (rows, out) float64 array
        The block under each of the three formulas.
    allowed : (rows,) float64 array
        Largest absolute error a run of the asked form in the dtype of x may have in each row; see the module's
        docstring.
    """

    y: dict[str, F64]
    allowed: F64


def expected(stack: Stack | Block, x: Array, form: str) -> Expected:
    """Compute the blocks in float64 under every formula, and the tolerance under `form`.

    Parameters
    ----------
    stack : Stack or Block
        Weights of any floating dtype; float64 is the truth, even if the model's are those rounded.
    x : (rows, in) array
        Of the dtype that the model runs in.
    form : {"none", "tanh", "quick"}
    """
    if isinstance(stack, Block):
        stack = Stack((stack,))
    y = {name: forward(stack, x, name) for name in FORMS if name != form}
    y[form], noise = sized(stack, x, form)
    nudged = forward(stack, x, form, unit(x.dtype)) if len(stack.blocks) > 1 else y[form]
    # A row that overflows gets an infinite or nan allowance.
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(plain(stack, x, form).astype(np.float64) - y[form]).max(axis=1, initial=0.0)
        scale = noise.max(axis=1, initial=0.0)
        share = np.divide(error, scale, out=np.zeros_like(error), where=scale > 0)
        typical = math.sqrt(np.mean(share[np.isfinite(share)] ** 2)) if np.isfinite(share).any() else 0.0
        handed_on = np.abs(nudged - y[form]).max(axis=1, initial=0.0)
        allowed = MARGIN * (error + handed_on + scale * (typical + unit(x.dtype)))
    # A runtime may flush subnormals to zero.
    return Expected(y, allowed + float(finfo(x.dtype).smallest_normal))


def forward(stack: Stack, x: Array, form: str, nudge: float = 0.0) -> F64:
    """The blocks in float64. `nudge` is added to every GELU but the last, in units of its input."""
    y = x.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for index, block in enumerate(stack.blocks):
            total = np.zeros((len(x), block.out_features))
            for w1, b1, w2 in _parts(block):
                h = y @ w1 + b1
                a = gelu64(h, form)
                if nudge and index < len(stack.blocks) - 1:
                    a += nudge * np.abs(h)
                total += a @ w2
            y = total if block.b2 is None else total + block.b2.astype(np.float64)
    return y


def sized(stack: Stack, x: Array, form: str) -> tuple[F64, F64]:
    """`forward`, and the scale s of the module's docstring for each output."""
    y, scale = x.astype(np.float64), np.zeros((0, 0))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for index, block in enumerate(stack.blocks):
            size, carried = np.zeros((len(x), block.out_features)), np.zeros((len(x), block.out_features))
            for w1, b1, w2 in _parts(block):
                size += np.abs(y @ w1 + b1) @ np.abs(w2)
                if index:
                    carried += (scale**2 @ w1**2) @ w2**2
            if block.b2 is not None:
                size += np.abs(block.b2.astype(np.float64))
            y, scale = forward(Stack((block,)), y, form), size + np.sqrt(carried)
    return y, scale


def _parts(block: Block) -> Iterator[tuple[F64, Any, F64]]:
    """w1, b1 and w2 in float64, some hidden values at a time."""
    step = max(1, _CHUNK // max(block.in_features, block.out_features))
    for start in range(0, block.hidden_features, step):
        part = slice(start, start + step)
        b1 = 0.0 if block.b1 is None else block.b1[part].astype(np.float64)
        yield block.w1[:, part].astype(np.float64), b1, block.w2[part].astype(np.float64)


def plain(stack: Stack, x: Array, form: str) -> Array:
    """The blocks in the dtype of `x`, one product and one addition after the other, GELU rounded once from float64.

    Parameters
    ----------
    stack : Stack
        Weights of any floating dtype, rounded to that of `x`.
    x : (rows, in) array
    form : {"none", "tanh", "quick"}

    Returns
    -------
    (rows, out) array of the dtype of `x`
        The same bits on every machine: no BLAS, whose order of summation varies.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for block in stack.blocks:
            h = _plain_affine(x, block.w1, block.b1)
            x = _plain_affine(gelu64(h.astype(np.float64), form).astype(x.dtype), block.w2, block.b2)
    return x


def _plain_affine(x: Array, w: Array, bias: Array | None) -> Array:
    wide = np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype
    total = np.zeros((len(x), w.shape[1]), wide)
    term = np.empty_like(total)
    columns = x.astype(wide)
    for k in range(w.shape[0]):
        np.multiply(columns[:, k, None], w[k].astype(x.dtype).astype(wide), out=term)
        total += term
    if bias is not None:
        total = total.astype(x.dtype).astype(wide) + bias.astype(x.dtype).astype(wide)
    return total.astype(x.dtype)
