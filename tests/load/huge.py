"""Arrays of more than 2^31 elements, bfloat16: the last is right, and those around 2^31."""

import numpy as np
from ml_dtypes import bfloat16

import gelu_fast as gf

n = 2**31 + 1
x = np.zeros(n, bfloat16)  # pages that are only read cost nothing
marks = {0: 1.5, 2**31 - 1: -0.75, 2**31: 2.25, 2**30: -1.25}
for at, value in marks.items():
    x[at] = value


def check(y, function=gf.gelu, scale=1.0):
    assert y.shape == (n,)
    for at, value in marks.items():
        want = function(np.array([value], bfloat16))[0]
        assert y[at] == want, (at, y[at], want)
    assert y[1] == function(bfloat16(0))
    assert y[-2] == function(np.array([marks[2**31 - 1]], bfloat16))[0]


out = np.empty(n, bfloat16)
assert gf.gelu(x, out=out) is out
check(out)
gf.gelu(x[::-1], out=out[::-1])
check(out)
gf.gelu_backward(np.broadcast_to(bfloat16(1), n), x, out=out)
check(out, gf.gelu_grad)
gf.bias_gelu(x, np.broadcast_to(bfloat16(0), n), out=out)
check(out)
grid, rows = x[:-1].reshape(2, 2**30)[:, 1:], out[:-1].reshape(2, 2**30)[:, 1:]
rows[...] = 7
gf.gelu(grid, out=rows)
assert rows[-1, -1] == gf.gelu(np.array([-0.75], bfloat16))[0]
assert rows[1, 0] == 0
assert out[2**30] == gf.gelu(np.array([-1.25], bfloat16))[0]  # between the rows: as it was
wide = gf.geglu(x[: 2**31].reshape(1, 2**31), out=out[: 2**30].reshape(1, 2**30))
assert wide[0, -1] == 0
assert wide[0, 0] == gf.geglu(np.array([1.5, -1.25], bfloat16))[0]
print("ok")
