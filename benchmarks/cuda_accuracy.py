"""The answers of gelu_fast.cuda against the CPU's in float64; cuda.py prints them before it times anything."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda

import gelu_fast as gf
from gelu_fast.bounds import MISROUNDED, NEAR_ROOT, NUMBA_NEAR_ROOT, ULP

FORMS = ("none", "tanh", "quick")
ORDERS = ("gelu", "gelu_grad", "gelu_grad2")


@cache
def roots(function: str, form: str) -> tuple[float, ...]:
    """Where a derivative changes its sign, by bisection of the CPU's float64."""
    if function not in ("gelu_grad", "gelu_grad2"):
        return ()
    f = getattr(gf, function)
    x = np.linspace(-3, 3, 6001) + 1e-7
    change = np.flatnonzero((f(x, form)[1:] < 0) != (f(x, form)[:-1] < 0))
    low, high = x[change], x[change + 1]
    for _ in range(60):
        middle = (low + high) / 2
        left = (f(middle, form) < 0) == (f(low, form) < 0)
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    return tuple(low.tolist())


def samples(n: int, dtype: str, near: tuple[float, ...], seed: int = 0) -> Any:
    """Ordinary values, all magnitudes, the specials; by each root the neighbours, and ever nearer."""
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal(n // 2) * 3, rng.uniform(-40, 40, n // 4),
             np.exp2(rng.uniform(-149, 127, n // 8)) * rng.choice([-1, 1], n // 8),
             [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45]]  # fmt: skip
    for root in near:
        parts += [root + np.spacing(np.array(root, dtype)).astype(float) * np.arange(-n // 64, n // 64 + 1),
                  root + rng.choice([-1, 1], n // 16) * np.exp2(rng.uniform(-30, -5.5, n // 16))]  # fmt: skip
    return np.concatenate(parts).astype(dtype)


def accuracy(n: int, every: int) -> bool:
    """Prints the worst errors of every function; whether all are within bounds.

    Parameters
    ----------
    n : int
        About so many float32 inputs, and a quarter of it float64.
    every : int
        Of the 65,536 inputs of a 16-bit type take one in so many.
    """
    fine = True
    titles = f"{'ULP':>6} {'at':>14}  {'by a root, ULP':>15} {'at':>14} {'absolute':>9}"
    print(f"{'function':14}{'form':6}{'dtype':10}{titles}")
    for function in (*ORDERS, "gelu_backward"):
        for form in FORMS:
            fine &= _wide(function, form, "float32", n)
            fine &= _wide(function, form, "float64", n // 4)
            for dtype in ("float16", "bfloat16") if function != "gelu_backward" else ():
                fine &= _short(function, form, dtype, every)
    return fine


def _wide(function: str, form: str, dtype: str, n: int) -> bool:
    slope = "gelu_grad" if function == "gelu_backward" else function
    near = roots(slope, form)
    x = samples(n, dtype, near)
    exact = getattr(gf, slope)(x.astype(np.float64), form)
    times = np.ones(1)
    with np.errstate(all="ignore"):
        if function == "gelu_backward":
            dy = np.random.default_rng(1).standard_normal(x.size).astype(dtype)
            got = gf.cuda.gelu_backward(cuda.to_device(dy), cuda.to_device(x), form).copy_to_host()
            times = np.abs(dy.astype(np.float64))
            small = np.abs(exact) < np.finfo(dtype).tiny
            exact = dy * exact
        else:
            got = getattr(gf.cuda, function)(cuda.to_device(x), form).copy_to_host()
        unit = np.spacing(np.abs(exact).astype(dtype)).astype(np.float64)
        if function == "gelu_backward":  # as gelu_fast.bounds has it
            unit = np.where(small, np.maximum(unit, times * float(np.finfo(dtype).smallest_subnormal)), unit)
        equal = (got == exact) | (np.isnan(got) & np.isnan(exact))
        error = np.where(equal, 0, np.abs(got.astype(np.float64) - exact))
        ulp = np.where(equal, 0, error / unit)
    by_root = np.zeros(x.shape, bool)
    for root in near:
        by_root |= np.abs(x - root) < NEAR_ROOT
    bound = ULP[function, dtype] + (2 if dtype == "float64" else 0)  # the CPU's own error
    absolute = NUMBA_NEAR_ROOT[dtype] + (2.0**-53 if dtype == "float64" else 0)
    good = bool(np.all((ulp <= bound) | (by_root & (error <= absolute * times))))
    good &= np.array_equal(np.isnan(got), np.isnan(exact))
    zero = got == 0
    good &= function == "gelu_backward" or np.array_equal(np.signbit(got[zero]), np.signbit(exact[zero]))
    far = int(np.argmax(np.where(by_root, 0, ulp)))
    line = f"{function:14}{form:6}{dtype:10}{ulp[far]:6.3f} {x[far]:14.8g}"
    if near:
        close = int(np.argmax(np.where(by_root, ulp, 0)))
        line += f"  {ulp[close]:15.3f} {x[close]:14.8g} {np.max(np.where(by_root, error / times, 0)):9.1e}"
    print(line + ("" if good else " WRONG"), flush=True)
    return good


def _short(function: str, form: str, dtype: str, every: int) -> bool:
    bits = np.arange(0, 65536, every).astype(np.uint16)
    x = bits.view(np.float16) if dtype == "float16" else bits
    wide = x.astype(np.float64) if dtype == "float16" else from_bfloat16(bits)
    got = getattr(gf.cuda, function)(cuda.to_device(x), form).copy_to_host()
    exact = getattr(gf, function)(wide, form)
    with np.errstate(over="ignore"):
        right = exact.astype(np.float16).view(np.uint16) if dtype == "float16" else to_bfloat16(exact)
    wrong = int(np.sum((got.view(np.uint16) != right) & ~np.isnan(wide)))
    good = wrong <= MISROUNDED[function, dtype]
    print(f"{function:14}{form:6}{dtype:10}{wrong:6} misrounded of {bits.size}{'' if good else ' WRONG'}", flush=True)
    return good


def fused(rows: int, columns: int) -> bool:
    """The fused forms against their steps: the same bits in float32; dbias against a sum in float64."""
    fine = True
    rng = np.random.default_rng(3)
    x, dy = rng.standard_normal((2, rows, columns)).astype(np.float32)
    bias, n = x[0].copy(), columns // 2
    g, half = np.ascontiguousarray(x[:, n:]), np.ascontiguousarray(dy[:, :n])
    d = cuda.to_device
    for form in FORMS:
        shifted, slope = d(x + bias), gf.cuda.gelu_grad(d(g), form).copy_to_host()
        value = gf.cuda.gelu(d(g), form).copy_to_host()
        dx, dbias = (a.copy_to_host() for a in gf.cuda.bias_gelu_backward(d(dy), d(x), d(bias), form))
        pairs = {
            "bias_gelu": (gf.cuda.bias_gelu(d(x), d(bias), form), gf.cuda.gelu(shifted, form).copy_to_host()),
            "geglu": (gf.cuda.geglu(d(x), form), x[:, :n] * value),
            "geglu_backward": (gf.cuda.geglu_backward(d(half), d(x), form),
                               np.concatenate([half * value, half * x[:, :n] * slope], axis=1)),
            "bias_gelu_backward": (d(dx), gf.cuda.gelu_backward(d(dy), shifted, form).copy_to_host()),
        }  # fmt: skip
        for name, (got, right) in pairs.items():
            same = np.array_equal(got.copy_to_host().view(np.uint32), right.view(np.uint32))
            fine &= same
            print(f"{name:19} {form:6} {'the bits of the steps' if same else 'WRONG'}")
        wide = dx.astype(np.float64)
        units = np.abs(dbias - wide.sum(axis=0)) / np.spacing(np.abs(dbias)).astype(np.float64)
        good = bool(np.all(units <= 0.5 + 2.0**-10))  # float64's own sum
        fine &= good
        print(f"{'dbias':19} {form:6} {units.max():.3f} ULP{'' if good else ' WRONG'}", flush=True)
    return fine


def from_bfloat16(bits: Any) -> Any:
    with np.errstate(invalid="ignore"):  # signalling nan
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def to_bfloat16(x: Any) -> Any:
    """float64 rounded to bfloat16 once, by way of float32 rounded to odd."""
    with np.errstate(all="ignore"):
        near = x.astype(np.float32)
    bits = near.view(np.uint32).copy()
    inexact = np.isfinite(x) & (near.astype(np.float64) != x) & (bits & 1 == 0)
    away = np.abs(near.astype(np.float64)) < np.abs(x)
    bits = np.where(inexact, np.where(away, bits + 1, bits - 1), bits).astype(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
