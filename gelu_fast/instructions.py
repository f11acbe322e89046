"""The primitives of the formulas that are the same LLVM on the CPU and on a GPU: typed and emitted here, for either's
``intrinsic`` (numba.extending, numba.cuda.extending) to wrap. Numba itself is not imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

Codegen = tuple[Any, Callable[..., Any]]

_MANTISSA = {32: 23, 64: 52}


def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Codegen:
    """a*b + c, rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return a(a, a, a), codegen


def low_bits_as_exponent(typingctx: Any, a: Any) -> Codegen:
    """The number whose sign and exponent fields are the lowest bits of a's significand, and whose fraction is 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.IntType(a.bitwidth)
        bits = builder.shl(builder.bitcast(args[0], integer), integer(_MANTISSA[a.bitwidth]))
        return builder.bitcast(bits, args[0].type)

    return a(a), codegen
