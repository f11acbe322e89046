"""The CUDA kernels' own exact form for results of 16 bits: every input, in plain Python; no GPU, no Numba."""

import numpy as np
import pytest

import gelu_fast as gf
from gelu_fast.cuda import short, simulated

ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs ml_dtypes")


@pytest.mark.parametrize(("dtype", "most"), [(np.float16, 3), (ml_dtypes.bfloat16, 2)])
def test_every_input(dtype, most):
    x = np.arange(65536, dtype=np.uint16).view(dtype)
    gelu = simulated.outer(short.make(simulated, np.dtype(dtype).name))
    with np.errstate(all="ignore"):
        got = np.array([gelu(v) for v in x.astype(np.float32)]).astype(dtype)
        exact = gf.gelu(x.astype(np.float64))
        right = rounded(exact, dtype)
        nan = np.isnan(x)
        assert np.isnan(got[nan]).all()
    gap = got.view(np.int16).astype(int) - right.view(np.int16)
    wrong = (gap != 0) & ~nan
    assert wrong.sum() <= most, x[wrong]
    assert np.abs(gap[wrong]).max(initial=0) <= 1


def rounded(x, dtype):
    """float64 rounded once: ml_dtypes goes by float32, which is made odd where it is inexact."""
    if dtype == np.float16:
        return x.astype(dtype)
    near = x.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = np.isfinite(x) & (near.astype(np.float64) != x) & (bits & 1 == 0)
    inward = np.abs(near.astype(np.float64)) > np.abs(x)
    odd = np.where(inexact, np.where(inward, bits - 1, bits + 1), bits).astype(np.uint32)
    return odd.view(np.float32).astype(dtype)
