"""Results so large that they are stored past the caches: the same bits, wherever they begin and end."""

import numpy as np
import pytest
from functions import same_bits, sample

import gelu_fast as gf

LIMIT = 32 << 20  # bytes, of dispatch.c


def placed(x, offset):
    """An empty array like `x` that begins `offset` items after a page, and the two items around it."""
    room = np.zeros(x.size + offset + 4096, x.dtype)
    begin = (-room.ctypes.data) % 4096 // x.itemsize + offset
    return room[begin:begin + x.size], room[begin - 1:begin + x.size + 1] if begin else room[begin:begin + x.size + 1]


@pytest.fixture(scope="module", params=[np.float32, np.float64])
def case(request):
    """x and its values, computed in pieces too small to be streamed."""
    dtype = request.param
    x = sample(LIMIT // np.dtype(dtype).itemsize + 5, dtype)
    return x, sample(x.size, dtype, seed=1)


def in_pieces(function, *arrays):
    return np.concatenate([function(*pieces) for pieces in zip(*(np.array_split(a, 7) for a in arrays), strict=True)])


@pytest.mark.parametrize("count", [1, 2])
def test_same_bits(case, isa, threads, count):
    x, dy = case
    threads(count)
    expected, slope = in_pieces(gf.gelu, x), in_pieces(gf.gelu_backward, dy, x)
    for offset in (0, 1, 3, 8):
        out, around = placed(x, offset)
        gf.gelu(x, out=out)
        same_bits(out, expected)
        assert around[-1] == 0
        out[...] = 0
        gf.gelu_backward(dy, x, out=out)
        same_bits(out, slope)
        assert around[-1] == 0


def test_in_place(case, isa):
    x, dy = case
    expected, slope = in_pieces(gf.gelu_grad, x), in_pieces(gf.gelu_backward, dy, x)
    for k in (0, 1):
        arrays = [dy.copy(), x.copy()]
        gf.gelu_backward(*arrays, out=arrays[k])
        same_bits(arrays[k], slope)
    y = x.copy()
    gf.gelu_grad(y, out=y)
    same_bits(y, expected)


def test_shifted_in_place(case, isa, threads):
    """NumPy makes no copy where the input lies ahead of the output: the elements must be taken in order."""
    x, dy = case
    expected, slope = in_pieces(gf.gelu, x), in_pieces(gf.gelu_backward, dy, x)
    threads(7)
    for shift in (1, 50, 4000):
        y = np.concatenate([np.zeros(shift, x.dtype), x])
        gf.gelu(y[shift:], out=y[:-shift])
        same_bits(y[:-shift], expected)
        y = np.concatenate([np.zeros(shift, x.dtype), x])
        gf.gelu_backward(dy, y[shift:], out=y[:-shift])
        same_bits(y[:-shift], slope)
        y = np.concatenate([x, np.zeros(shift, x.dtype)])  # behind: NumPy copies
        gf.gelu(y[:-shift], out=y[shift:])
        same_bits(y[shift:], expected)
