"""What the formulas are written against, as Numba intrinsics for the CPU.

Each is one LLVM instruction, or a fixed chain of them, that carries no fast-math flags: a product and a sum are never
fused behind the formulas' back, and a fused one never taken apart. On a CPU without FMA, llvm.fma becomes a call into
the C library: right, and slow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gelu_fast import instructions
from gelu_fast.instructions import Codegen


def function(python_function: Callable[..., Any]) -> Any:
    """A formula or a piece of one: always inlined (LLVM's own estimate says no), division by zero as in IEEE."""
    return numba.njit(forceinline=True, error_model="numpy")(python_function)


fma = intrinsic(instructions.fma)


@intrinsic
def div(typingctx: Any, a: Any, b: Any) -> Codegen:
    """a / b, with no exception for b = 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fdiv(*args)

    return a(a, a), codegen


@intrinsic
def magnitude(typingctx: Any, a: Any) -> Codegen:
    """|a|."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(builder.module.declare_intrinsic("llvm.fabs", [args[0].type]), args)

    return a(a), codegen


@intrinsic
def polynomial(typingctx: Any, u: Any, coefs: Any) -> Codegen:
    """sum coefs[k]*u^k: even and odd powers by Horner's scheme in u^2, side by side, written out.

    One chain in u took 14 % longer on AVX2 and 3 % on AVX-512; pairs first (Estrin), 10 % and 0 %, and lost accuracy.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at, numbers = args
        square = builder.fmul(at, at)
        chains = []
        for start in (0, 1):
            chain = [builder.extract_value(numbers, k) for k in range(start, signature.args[1].count, 2)]
            total = chain[-1]
            for coefficient in chain[-2::-1]:
                total = builder.fma(total, square, coefficient)
            chains.append(total)
        return builder.fma(chains[1], at, chains[0])

    return u(u, coefs), codegen


low_bits_as_exponent = intrinsic(instructions.low_bits_as_exponent)


@intrinsic
def widen(typingctx: Any, a: Any) -> Codegen:
    """float32 as float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(args[0], ir.DoubleType())

    return types.float64(a), codegen


@intrinsic
def narrow(typingctx: Any, a: Any) -> Codegen:
    """float64 rounded to float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fptrunc(args[0], ir.FloatType())

    return types.float32(a), codegen
