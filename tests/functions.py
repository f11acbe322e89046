"""What the array tests run over: every public function of x, with its form."""

import ml_dtypes
import numpy as np

import gelu_fast as gf

FORMS = ("none", "tanh", "quick")
UNARY = [(f, form) for f in (gf.gelu, gf.gelu_grad, gf.gelu_grad2) for form in FORMS]
DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


def sample(n, dtype=np.float32, seed=0):
    """n values that reach every branch: both signs, the near and the far range, and the specials."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n) * rng.choice([0.3, 1, 4], n)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -30.0, 30.0, -5.5]
    where = rng.choice(n, min(n, len(special)), replace=False)
    x[where] = special[: len(where)]
    return x.astype(dtype)


def same_bits(a, b):
    """Equal dtype, shape and bits; nan equals nan whatever its payload."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype, (a.dtype, b.dtype)
    assert a.shape == b.shape, (a.shape, b.shape)
    kind = f"u{a.itemsize}"
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    with np.errstate(invalid="ignore"):  # ml_dtypes' isnan of a signalling nan
        differ = (a.view(kind) != b.view(kind)) & ~(np.isnan(a) & np.isnan(b))
    assert not differ.any(), (a[differ][:5], b[differ][:5])
