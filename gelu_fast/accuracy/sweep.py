"""Errors of the functions over samples of inputs, on every instruction set this CPU has.

A reference value is computed once and compared with each instruction set's result; blocks are small enough for the
cache. Signs of zero, nan and the limits at infinity count: where one is wrong the error is inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gelu_fast.bounds import NEAR_ROOT

from . import double_double as dd
from .exact import FORMATS
from .functions import Function, instruction_set
from .oracle import oracle
from .oracle64 import oracle64, ulps
from .rounding import correctly_rounded, quantum, ulps32
from .tally import Tally, regions

Array = npt.NDArray[Any]

BLOCK = 1 << 15


def sweep(function: Function, x: Array, isas: Sequence[str]) -> dict[str, Tally]:
    """Compare float32 or float64 results with the oracle.

    Parameters
    ----------
    function : Function
    x : ndarray of float32 or float64
        One-dimensional.
    isas : sequence of str

    Returns
    -------
    dict of str to Tally
        By instruction set.
    """
    tallies = {isa: Tally() for isa in isas}
    errors_of = _errors32 if x.dtype == np.float32 else _errors64
    for start in range(0, x.size, BLOCK):
        block = x[start : start + BLOCK]
        computed = {}
        for isa in isas:
            with instruction_set(isa):
                computed[isa] = function.ufunc(block)
        errors, subnormal = errors_of(function, block, list(computed.values()))
        region = regions(block, subnormal, function.root, NEAR_ROOT, function.order == 2)
        for isa, error in zip(isas, errors, strict=True):
            tallies[isa].add(block, error, region)
    return tallies


def sweep_backward(function: Function, dy: Array, x: Array, isas: Sequence[str]) -> dict[str, Tally]:
    """The same for dy times a first derivative.

    Parameters
    ----------
    function : Function
        A first derivative.
    dy, x : ndarray
        Of one dtype, float32 or float64, and one length; finite. No product may overflow.
    isas : sequence of str

    Returns
    -------
    dict of str to Tally
    """
    tallies = {isa: Tally() for isa in isas}
    for start in range(0, x.size, BLOCK):
        part = slice(start, start + BLOCK)
        value, shift = _product64(function, dy[part], x[part])
        floor = _product_floor(function, dy[part], x[part], value, shift)
        subnormal = np.abs(value[0]) < np.ldexp(np.finfo(x.dtype).tiny.astype(np.float64), shift)
        region = regions(x[part], subnormal, function.root, NEAR_ROOT, False)
        for isa in isas:
            with instruction_set(isa):
                computed = function.backward(dy[part], x[part])
            error = np.abs(ulps(computed.astype(np.float64), value, shift, x.dtype.name)) / floor
            tallies[isa].add(x[part], _settle(error, np.isfinite(computed)), region, dy[part])
    return tallies


@dataclass(frozen=True)
class Misrounded:
    """16-bit inputs whose results are the wrong one of two neighbours, and those that are worse than that."""

    inputs: Array
    grave: Array


def misrounded(function: Function, x: Array, isas: Sequence[str]) -> dict[str, Misrounded]:
    """The 16-bit inputs, of those given, whose results are not the exact ones correctly rounded.

    Grave: off by more than one place, or wrong in a nan, a limit or the sign of a zero.
    """
    want = correctly_rounded(x, function.form, function.order)
    wrong = {}
    for isa in isas:
        with instruction_set(isa):
            got = function.ufunc(x).astype(np.float64)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        with np.errstate(invalid="ignore"):  # inf - inf
            near = np.abs(got - want) <= quantum(np.fmax(np.abs(got), np.abs(want)), x.dtype.name)
        grave = np.where(same | (near & np.isfinite(want)), 0.0, 1.0)
        mark_wrong_zeros(function, x, got, grave)
        wrong[isa] = Misrounded(x[~same], x[grave > 0])
    return wrong


def all_16_bit(dtype: Any) -> Array:
    """Every number of a 16-bit type, nans included."""
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def dy_sample(x: Array, derivative_max: float = 1.2, seed: int = 1) -> Array:
    """A dy of either sign for each x, log-uniform over all magnitudes for which no product can overflow."""
    info, rng = np.finfo(x.dtype), np.random.default_rng(seed)
    top = np.log2(float(info.max)) - np.log2(derivative_max) - 1
    size = 2.0 ** rng.uniform(info.minexp - info.nmant, top, x.size)
    return np.asarray((size * rng.choice([-1.0, 1.0], x.size)).astype(x.dtype))


def mark_wrong_zeros(function: Function, x: Array, computed: Array, error: Array) -> None:
    """GELU's zeros have the sign of x (what underflows for x < 0 is -0.0); where they don't, `error` becomes inf."""
    if function.order == 0:
        error[(computed == 0) & (np.signbit(computed) != np.signbit(x))] = np.inf


# -- errors of one block -----------------------------------------------------------------------------------------------

def _errors32(function: Function, x: Array, results: list[Array]) -> tuple[list[Array], Array]:
    value = oracle(x, function.form, function.order)
    errors = []
    for computed in results:
        error = ulps32(computed, value)
        mark_wrong_zeros(function, x, computed, error)
        errors.append(error)
    return errors, np.abs(value) < 2.0**-126


def _errors64(function: Function, x: Array, results: list[Array]) -> tuple[list[Array], Array]:
    finite = np.isfinite(x)
    value, shift = oracle64(np.where(finite, x, 0.0), function.form, function.order)
    limit = oracle(x[~finite].astype(np.float32), function.form, function.order)
    errors = []
    for computed in results:
        error = _settle(np.abs(ulps(computed, value, shift)), np.isfinite(computed))
        error[~finite] = ulps32(computed[~finite], limit)
        mark_wrong_zeros(function, x, computed, error)
        errors.append(error)
    return errors, np.abs(value[0]) < np.ldexp(2.0**-1022, shift)


def _settle(error: Array, good: Array) -> Array:
    return np.where(good & ~np.isnan(error), error, np.inf)


def _product64(function: Function, dy: Array, x: Array) -> tuple[dd.Pair, Array]:
    value, shift = oracle64(x.astype(np.float64), function.form, 1)
    mantissa, exponent = np.frexp(dy.astype(np.float64))
    return dd.times(value, mantissa), shift - exponent


def _product_floor(function: Function, dy: Array, x: Array, value: dd.Pair, shift: Array) -> Array:
    """The unit of a backward error in ULP of the product: 1, or |dy| smallest subnormals if more (gelu_fast.bounds)."""
    digits, smallest = FORMATS[x.dtype.name]
    mantissa, dy_exponent = np.frexp(np.abs(dy.astype(np.float64)))
    _, exponent = np.frexp(value[0])
    unit = np.maximum(exponent - shift - digits, smallest)
    return np.asarray(np.maximum(1.0, np.ldexp(mantissa, dy_exponent + smallest - unit)))
