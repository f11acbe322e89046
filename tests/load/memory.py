"""No memory, by RLIMIT_AS: MemoryError, and all goes on."""

import re
import resource
from pathlib import Path

import numpy as np

import gelu_fast as gf

MB = 1 << 20


def used():
    return int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


def limit(room):
    """At most `room` bytes more than now."""
    resource.setrlimit(resource.RLIMIT_AS, (used() + room, resource.RLIM_INFINITY))


def fails(call):
    try:
        call()
    except MemoryError:
        return True
    return False


gf.set_num_threads(4)
x = np.linspace(-9, 9, 16 * MB, dtype="f4")
small, expected = x[:: 1 << 12].copy(), gf.gelu(x[:: 1 << 12].copy())
wide = np.ones((2, MB), np.float16)
bias = np.ones(MB, np.float16)
pair = gf.bias_gelu_backward(wide, wide, bias)
grid = x.reshape(4096, 4096)
ff = gf.FeedForward(np.ones((16, 2 * MB), "f4"), None, np.ones((2 * MB, 1), "f4"), None)
calls = {
    "gelu": lambda: gf.gelu(x), "gelu of a view": lambda: gf.gelu(grid.T[:, 1:]),
    "gelu of swapped": lambda: gf.gelu(x.view(x.dtype.newbyteorder())),
    "gelu_backward": lambda: gf.gelu_backward(x, x), "gelu_with_grad": lambda: gf.gelu_with_grad(x),
    "bias_gelu": lambda: gf.bias_gelu(grid, grid[0]), "geglu": lambda: gf.geglu(grid),
    "geglu_backward": lambda: gf.geglu_backward(grid[:, :2048], grid), "list": lambda: gf.gelu(range(4 * MB)),
    "FeedForward": lambda: ff(np.ones((64, 16), "f4")),
    "FeedForward.backward": lambda: ff.backward(np.ones((2, 1), "f4"), np.ones((2, 16), "f4")),
}  # fmt: skip
for _ in range(3):
    limit(16 * MB)
    for name, call in calls.items():
        assert fails(call), name
        assert np.array_equal(gf.gelu(small), expected), name
    limit(1 << 40)

# The sums of bias_gelu_backward, 64 rows of float64 of our own, have no room; dx and dbias have.
seen = 0
for room in range(2, 80, 2):
    limit(room * MB)
    try:
        found = gf.bias_gelu_backward(wide, wide, bias)
    except MemoryError as error:
        seen += "no memory for the sums" in str(error)
    else:
        assert all(map(np.array_equal, found, pair))
        break
    assert np.array_equal(gf.gelu(small), expected)
else:
    raise AssertionError("never enough")
assert seen, "our own allocation never failed"
limit(1 << 40)
assert np.array_equal(gf.gelu(x)[:: 1 << 12], expected)
print("ok")
