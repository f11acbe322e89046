"""The stated error bounds: the one table that the tests, the `accuracy` command and the documentation read.

Errors are in ULP of the exact value: |computed - exact| / ulp(exact), ulp(v) being the gap of the dtype at |v|, and its
smallest subnormal below the normal range. They hold for every input, next to the derivatives' roots and in the tail
down to the last subnormal too, on every instruction set.

The 16-bit types are computed in float32 and rounded once; what is stated is how many of the 65,536 inputs of a function
come out other than correctly rounded (always by one place).

`gelu_backward` is dy times the rounded derivative: two roundings. Where that derivative is itself subnormal, its unit
is |dy| times the smallest subnormal if that is more than the ULP of the product.
"""

from __future__ import annotations

KINDS = ("gelu", "gelu_grad", "gelu_grad2", "gelu_backward")

ULP = {
    ("gelu", "float32"): 2.0, ("gelu", "float64"): 2.0,
    ("gelu_grad", "float32"): 2.0, ("gelu_grad", "float64"): 2.0,
    ("gelu_grad2", "float32"): 2.0, ("gelu_grad2", "float64"): 2.0,
    ("gelu_backward", "float32"): 4.5, ("gelu_backward", "float64"): 4.5,
}  # fmt: skip

# Inputs of 65,536 that are misrounded, at most. Where bfloat16's results are subnormal, half of an odd one is a tie in
# float32, while the exact value lies beside it: of 256 such inputs, every other one goes to even on the wrong side.
TIES = 128
MISROUNDED = {
    ("gelu", "float16"): 12, ("gelu", "bfloat16"): 12 + TIES,
    ("gelu_grad", "float16"): 12, ("gelu_grad", "bfloat16"): 12,
    ("gelu_grad2", "float16"): 12, ("gelu_grad2", "bfloat16"): 12,
}  # fmt: skip

# A derivative's root: within this distance of it an error is reported apart.
NEAR_ROOT = 2.0**-6

# Numba's kernels and scalars (backend="numba", gelu_fast.jit) keep the bounds of `ULP` too, with one exception: within
# NEAR_ROOT of a derivative's root the error may instead be so much, absolute (times |dy| for `gelu_backward`).
NUMBA_NEAR_ROOT = {"float32": 2.0**-26, "float64": 2.0**-54}
