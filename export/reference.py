"""The feed-forward block in float64, and how far float32 arithmetic may stray from it.

Nothing here uses gelu_fast's kernels: it is what exported models are judged by. The exact form goes through
C's ``erfc``; the two sigmoid forms through NumPy's float64 ``exp``.

The tolerance
-------------
No fixed number is right. Measured over blocks from 1 to 16,384 wide, onnxruntime's error in units of
2⁻²⁴·Σ|terms| was 0.1 for random weights and 60 for constant ones, where every addition rounds the same way. A
bound that admits the second hides a wrong formula in the first. So the block itself is computed once more in
the plainest float32 there is, term after term, and row i of the output may be off by at most

    4 · (e_i + s_i · (r + 2⁻²⁴)),    s_i = max over outputs of (Σ|h|·|w2| + |b2|),    r = rms over rows of e_i / s_i

with e_i the largest error of the plain float32 row and h the hidden layer before GELU. r covers the rows whose
plain sum came out right by luck, 2⁻²⁴ the blocks whose sums are all exact and a GELU that errs by a few roundings.
Measured on seven kinds of weights (random, constant, positive, ternary, tiny, large, zero) and eight shapes up to
512→2048→512: a right model uses at most 0.52 of this, 0.05 for random weights of that size; the other formula
exceeds it 1.8 to 460 times (20 for random weights of that size), unless the weights are so large that every hidden
value saturates and the formulas agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gelu_fast.export.sources import Block
from gelu_fast.forms import FORMS, QUICK_SLOPE, TANH_CUBIC

F64 = npt.NDArray[np.float64]
F32 = npt.NDArray[np.float32]

UNIT = 2.0**-24  # half a float32 ULP at 1: the relative error of one rounding
MARGIN = 4.0
_CHUNK = 1 << 20  # weights held in float64 at a time, so that checking a large block doesn't triple its memory

_erfc = np.frompyfunc(math.erfc, 1, 1)


def gelu64(x: F64, form: str) -> F64:
    """GELU of a float64 array, by the formulas in `gelu_fast.forms`.

    Parameters
    ----------
    x : float64 array, any shape, finite
    form : {"none", "tanh", "quick"}

    Returns
    -------
    float64 array of the same shape
    """
    if form not in FORMS:
        raise ValueError(f"form: expected one of {FORMS}, got {form!r}")
    if form == "none":
        return np.asarray(0.5 * x * np.asarray(_erfc(-x * math.sqrt(0.5)), np.float64))
    with np.errstate(over="ignore", under="ignore"):  # exp(-y) = inf is the right limit: x / inf = -0
        slope = 2 * math.sqrt(2 / math.pi) * (1 + TANH_CUBIC * x * x) if form == "tanh" else QUICK_SLOPE
        return np.asarray(x / (1 + np.exp(-slope * x)), np.float64)


@dataclass(frozen=True)
class Expected:
    """What a block must give for some rows.

    Attributes
    ----------
    y : dict of form to (rows, out) float64 array
        The block under each of the three formulas.
    allowed : (rows,) float64 array
        Largest absolute error a float32 run of the asked form may have in each row; see the module's
        docstring.
    """

    y: dict[str, F64]
    allowed: F64


def expected(block: Block, x: F32, form: str) -> Expected:
    """Compute the block in float64 under every formula, and the tolerance under `form`.

    Parameters
    ----------
    block : Block
        Weights of any floating dtype.
    x : (rows, in) float32 array
    form : {"none", "tanh", "quick"}
    """
    x64 = x.astype(np.float64)
    y = {name: np.zeros((len(x), block.out_features)) for name in FORMS}
    size = np.zeros((len(x), block.out_features))
    step = max(1, _CHUNK // max(block.in_features, block.out_features))
    for start in range(0, block.hidden_features, step):
        part = slice(start, start + step)
        h = x64 @ block.w1[:, part].astype(np.float64)
        if block.b1 is not None:
            h += block.b1[part].astype(np.float64)
        w2 = block.w2[part].astype(np.float64)
        for name in FORMS:
            y[name] += gelu64(h, name) @ w2
        size += np.abs(h) @ np.abs(w2)
    if block.b2 is not None:
        b2 = block.b2.astype(np.float64)
        size += np.abs(b2)
        for name in FORMS:
            y[name] += b2
    with np.errstate(over="ignore", invalid="ignore"):  # a row that overflows gets an infinite or nan allowance
        plain = np.abs(plain_float32(block.astype(np.dtype(np.float32)), x, form) - y[form])
        error, scale = plain.max(axis=1, initial=0.0), size.max(axis=1, initial=0.0)
        share = np.divide(error, scale, out=np.zeros_like(error), where=scale > 0)
        typical = math.sqrt(np.mean(share[np.isfinite(share)] ** 2)) if np.isfinite(share).any() else 0.0
        allowed = MARGIN * (error + scale * (typical + UNIT))
    # A runtime may flush subnormals to zero.
    return Expected(y, allowed + 2.0**-126)


def plain_float32(block: Block, x: F32, form: str) -> F32:
    """The block in float32, one product and one addition after the other, GELU rounded once from float64.

    Parameters
    ----------
    block : Block
        float32 weights.
    x : (rows, in) float32 array
    form : {"none", "tanh", "quick"}

    Returns
    -------
    (rows, out) float32 array
        The same bits on every machine: no BLAS, whose order of summation varies.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        h = _plain_affine(x, block.w1, block.b1)
        a = gelu64(h.astype(np.float64), form).astype(np.float32)
        return _plain_affine(a, block.w2, block.b2)


def _plain_affine(x: F32, w: F32, bias: F32 | None) -> F32:
    total = np.zeros((len(x), w.shape[1]), np.float32)
    term = np.empty_like(total)
    for k in range(w.shape[0]):
        np.multiply(x[:, k, None], w[k], out=term)
        total += term
    return total if bias is None else total + bias
