"""The nine functions as Numba computes them, in the shape that gelu_fast.accuracy measures."""

from functools import cache, partial

import numba
import numpy as np

import gelu_fast as gf
from gelu_fast.accuracy import functions
from gelu_fast.jit import arrays

NAMES = {f"gelu{suffix}": getattr(gf, f"gelu{suffix}") for suffix in ("", "_grad", "_grad2")}


def front(kind):
    """`gelu_fast.gelu` and so on with the backend given; keeps its name."""
    call = partial(NAMES[kind], backend="numba")
    call.__name__ = kind
    return call


class OnNumba:
    """A `gelu_fast.accuracy.functions.Function` that the front door computes with backend="numba"."""

    def __init__(self, function):
        self.function = function

    def __getattr__(self, name):
        return getattr(self.function, name)

    def ufunc(self, x):
        return NAMES[self.kind](x, self.form, backend="numba")

    def backward(self, dy, x):
        return gf.gelu_backward(dy, x, self.form, backend="numba")


class InALoop(OnNumba):
    """The same by the scalars, one at a time, as a user's own compiled loop has them."""

    def ufunc(self, x):
        out = np.empty_like(x)
        _loop(self.name, x.dtype.name)(x, out)
        return out


@cache
def _loop(name, dtype):
    one_thread, _ = arrays.loops_of_scalars(name, dtype)
    return numba.njit(one_thread, error_model="numpy")


NINE = [OnNumba(f) for f in functions.FUNCTIONS.values()]
NINE_IN_A_LOOP = [InALoop(f) for f in functions.FUNCTIONS.values()]
UNARY = [(front(kind), form) for kind in NAMES for form in ("none", "tanh", "quick")]


def around(root, dtype):
    """Every distance from a root: the nearest numbers, and a hundred thousand within 2^-6."""
    rng = np.random.default_rng(5)
    near = np.array([root], dtype)
    bits = near.view(f"i{near.itemsize}") + np.arange(-2000, 2001, dtype=f"i{near.itemsize}")
    spread = root + rng.choice([-1, 1], 100_000) * 2.0 ** rng.uniform(-50, -6, 100_000)
    return np.concatenate([bits.view(dtype), spread.astype(dtype)])
