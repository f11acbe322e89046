"""Arrays of any layout for the property tests: any strides, offsets, byte orders, flags; and what lies around them."""

import os

import numpy as np
from functions import DTYPES
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

LONG = os.environ.get("GELU_FAST_LONG") == "1"
# The short run draws the same examples each time, so that the suite is red only where something changed.
PROFILE = settings(
    max_examples=int(os.environ.get("GELU_FAST_EXAMPLES", 2500)) if LONG else 50, derandomize=not LONG, deadline=None,
    database=None, phases=[Phase.explicit, Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
)  # fmt: skip

# Lengths of an axis: around a vector's, a strided copy's (512) and a row segment's (2,048) ends.
LENGTHS = st.sampled_from([0, 1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 33])
LONG_LENGTHS = st.sampled_from([63, 511, 512, 513, 1025, 2047, 2049, 4100])
SEEDS = st.integers(0, 2**32 - 1)


def values(seed, n, dtype):
    """Every kind of number: the usual range, all bit patterns (nan payloads, subnormals, infinities), one repeated."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(4)
    if kind == 0:
        return rng.integers(0, 256, n * np.dtype(dtype).itemsize, np.uint8).view(dtype)
    x = rng.standard_normal(n) * (1 if kind == 1 else 10)
    if kind == 3:
        x[rng.random(n) < 0.2] = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, -5.5, 300, -1e-30])
    with np.errstate(over="ignore"):
        return x.astype(dtype)


@st.composite
def shapes(draw, least=0, most=4):
    """Up to four axes, of which one may be long."""
    shape = draw(st.lists(LENGTHS, min_size=least, max_size=most))
    while np.prod(shape, dtype=int) > 3_000:
        shape[shape.index(max(shape))] = 2
    if shape and draw(st.booleans()) and np.prod(shape, dtype=int) < 20:
        k = draw(st.integers(0, len(shape) - 1))
        shape[k] = draw(LONG_LENGTHS)
    return tuple(shape)


class Placed:
    """An array, and the memory that it lies in."""

    def __init__(self, array, memory):
        self.array, self.memory = array, memory

    def __repr__(self):
        a = self.array
        return f"<{a.dtype} {a.shape}, strides {a.strides}, at {a.ctypes.data % 64} of 64, {a.ravel()[:8]}>"

    def untouched_around(self, before):
        """Whether the memory is as `before` once the array's elements have theirs back: nothing else was written."""
        if self.array.size == 0:
            return np.array_equal(self.memory, before)
        now = self.array.copy()
        self.array[...] = Placed.like(self, before)
        same = np.array_equal(self.memory, before)
        self.array[...] = now
        return same

    def like(self, memory):
        """The same view, of other memory of the same size."""
        offset = self.array.__array_interface__["data"][0] - self.memory.__array_interface__["data"][0]
        return np.ndarray(self.array.shape, self.array.dtype, memory, offset, self.array.strides)


# So many elements that several threads are used, for views of several axes by rows.
LARGE_SHAPES = st.sampled_from([(130_001,), (3, 40_000), (400, 300), (2, 300, 200), (50_000, 2)])


@st.composite
def placed(draw, shape, dtype, writeable=False):
    """An array of the shape: axes permuted, steps of up to 3, reversed, broadcast (inputs only), off the alignment,
    byte-swapped, read-only (inputs only); bytes of 0xA5 around it, and numbers in it."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f" and dtype.isbuiltin and draw(st.integers(0, 3)) == 0:
        dtype = dtype.newbyteorder(">")
    axes = draw(st.permutations(range(len(shape)))) if draw(st.booleans()) else range(len(shape))
    size, steps, inner = [], [], []
    cut = draw(st.integers(0, len(shape)))  # one axis, or none, is a part of a longer one
    for k in axes:
        step = draw(st.sampled_from([1, 1, 1, 1, 2, 3, -1, -1, -2, 0]))
        if step == 0 and writeable:
            step = 1
        before, after = (draw(st.integers(0, 2)), draw(st.integers(0, 2))) if k == cut else (0, 0)
        length = shape[k] * abs(step) if step else min(shape[k], 1)
        size.append(before + length + after)
        inner.append(slice(before, before + length))
        steps.append(step)
    shift = draw(st.sampled_from([0, 0, 0, 1, dtype.itemsize, 3 * dtype.itemsize]))
    count = int(np.prod(size, dtype=int))
    memory = np.full(count * dtype.itemsize + 128, 0xA5, np.uint8)
    view = memory[64 + shift :][: count * dtype.itemsize].view(dtype).reshape(size)[(..., *inner)]
    view = view[(..., *(slice(None, None, step or None) for step in steps))]
    view[...] = values(draw(SEEDS), view.size, dtype.newbyteorder("=")).reshape(view.shape)
    view = view.transpose(np.argsort(axes)) if shape else view
    view = np.broadcast_to(view, shape) if view.shape != tuple(shape) else view
    assert view.shape == tuple(shape)
    if not writeable and draw(st.booleans()):
        view.flags.writeable = False
    return Placed(view, memory)


def plain(array):
    """A contiguous native copy, apart from everything."""
    return np.array(array, array.dtype.newbyteorder("="), order="C", copy=True)


dtypes = st.sampled_from(DTYPES)
