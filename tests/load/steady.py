"""python steady.py CALLS: no reference and no memory is lost, in good calls and refused ones."""

import gc
import resource
import sys
from pathlib import Path

import numpy as np

import gelu_fast as gf

count = int(sys.argv[1])
x, out, dy = np.linspace(-5, 5, 64, dtype="f4"), np.empty(64, "f4"), np.ones(64, "f4")
grid, bias = x.reshape(4, 16), np.ones(16, "f4")
half, swapped, numbers, other = grid[:, :8].copy(), x.astype(">f4"), np.arange(9), np.empty(63, "f4")
masked = np.ma.masked_array(x, mask=x > 0)
frozen = np.empty(64, "f4")
frozen.flags.writeable = False
ff = gf.FeedForward(np.ones((16, 4), "f4"), None, np.ones((4, 2), "f4"), None)
form, large, square = "tanh", np.ones(200_000, "f4"), np.ones((400, 500), "f4")[:, 1:]


def refused(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except (TypeError, ValueError):
        return
    raise AssertionError("not refused")


usual = [
    lambda: gf.gelu(x), lambda: gf.gelu(x, form, out=out), lambda: gf.gelu_grad(x), lambda: gf.gelu_grad2(x, form),
    lambda: gf.gelu_backward(dy, x, out=out), lambda: gf.gelu_with_grad(x, form), lambda: gf.bias_gelu(grid, bias),
    lambda: gf.bias_gelu_backward(grid, grid, bias), lambda: gf.geglu(grid), lambda: gf.geglu_backward(half, grid),
    lambda: ff(grid), lambda: gf.gelu(1.0), lambda: gf.gelu(x[::2]), lambda: gf.ufuncs.gelu(x, where=x > 0, out=out),
    lambda: gf.get_num_threads(),
]  # fmt: skip
slow = [
    lambda: gf.gelu(swapped), lambda: gf.gelu(numbers), lambda: gf.gelu(masked), lambda: gf.geglu(masked),
    lambda: gf.bias_gelu(masked.reshape(4, 16), bias), lambda: ff.backward(np.ones((4, 2), "f4"), grid),
    lambda: refused(gf.gelu, x, out=other), lambda: refused(gf.gelu, x, out=frozen), lambda: refused(gf.gelu, 1j),
    lambda: refused(gf.gelu, x, "erf"), lambda: refused(gf.set_num_threads, 0), lambda: gf.cpu_info(),
    lambda: refused(gf.bias_gelu, grid, bias, out=other), lambda: gf.ufuncs.gelu_backward.reduce(x),
    lambda: refused(gf.ufuncs.gelu, np.ones(2, complex)), lambda: gf.gelu(large), lambda: gf.gelu(square),
    lambda: gf.bias_gelu_backward(square, square, square[0]),
]  # fmt: skip
watched = [x, out, dy, grid, bias, half, swapped, numbers, other, masked, frozen, ff, form, large, square,
           ff.w1, np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), gf.ufuncs.gelu, gf.ufuncs.gelu_backward]  # fmt: skip


def run(calls):
    for k in range(calls):
        usual[k % len(usual)]()
        if k % 100 == 0:
            slow[k // 100 % len(slow)]()


def state():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return [sys.getrefcount(a) for a in watched], sys.getallocatedblocks(), pages * resource.getpagesize()


def lost():
    """What one more round of calls has cost."""
    references, blocks, resident = state()
    run(count)
    later = state()
    gone = [(type(a), b, c) for a, b, c in zip(watched, references, later[0], strict=True) if b != c]
    return gone, later[1] - blocks, later[2] - resident


# A loss comes in every round; the interpreter's own (caches, an interned string's users) in none that follows another.
run(20_000)
rounds = []
for _ in range(4):
    gone, blocks, resident = lost()
    rounds.append((gone, blocks, resident))
    if not gone and abs(blocks) < 50 and resident < 2 << 20:
        break
else:
    raise AssertionError(rounds)
print("ok", blocks, resident)
