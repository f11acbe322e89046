"""Vectors of float32 as LLVM instructions: cpu/vec_avx2.h and cpu/vec_avx512.h, for Numba.

A loop of scalars that Numba hands to LLVM can't become one with look-ups in registers: LLVM has no scalar instruction
that stands for a lane's own shuffle. So the array kernels' loops are written in vectors here, and the shuffles are the
target's own intrinsics. `chosen` picks by the features of the CPU that Numba compiles for.
"""

from __future__ import annotations

from typing import Any, ClassVar

from llvmlite import ir
from numba.core.cgutils import get_or_insert_function

Value = Any  # an llvmlite ir.Value
_FLOAT, _INT = ir.FloatType(), ir.IntType(32)


class Vectors:
    """What both instruction sets have. A method appends instructions to the builder's block; values are vectors.

    Attributes
    ----------
    layout : str
        The tables that fit a register: those of `gelu_fast.coefficients` by this name.
    magic : float
        Adding it rounds to an eighth and leaves the number of eighths in the low bits.
    """

    lanes: ClassVar[int]
    layout: ClassVar[str]
    magic: ClassVar[float]
    index_shift: ClassVar[int]
    features: ClassVar[tuple[str, ...]]

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.type = ir.VectorType(_FLOAT, self.lanes)
        self.int_type = ir.VectorType(_INT, self.lanes)

    def call(self, name: str, *args: Value, result: Any = None) -> Value:
        result = result or self.type
        function = ir.FunctionType(result, [a.type for a in args])
        return self.builder.call(get_or_insert_function(self.builder.module, function, name), args)

    def numbers(self, values: list[float]) -> Value:
        return ir.Constant(ir.VectorType(_FLOAT, len(values)), values)

    def set(self, value: float) -> Value:
        return self.numbers([value] * self.lanes)

    def set_bits(self, value: int) -> Value:
        return ir.Constant(self.int_type, [value] * self.lanes)

    def load(self, address: Value) -> Value:
        return self.builder.load(self._at(address), typ=self.type, align=4)

    def store(self, address: Value, value: Value) -> None:
        self.builder.store(value, self._at(address), align=4)

    def _at(self, address: Value) -> Value:
        return self.builder.bitcast(address, self.type.as_pointer())

    def bits(self, a: Value) -> Value:
        return self.builder.bitcast(a, self.int_type)

    def from_bits(self, a: Value) -> Value:
        return self.builder.bitcast(a, self.type)

    def add(self, a: Value, b: Value) -> Value:
        return self.builder.fadd(a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.builder.fsub(a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.builder.fmul(a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.call(f"llvm.fma.v{self.lanes}f32", a, b, c)

    def fms(self, a: Value, b: Value, c: Value) -> Value:
        return self.fma(a, b, self.builder.fneg(c))

    def fnma(self, a: Value, b: Value, c: Value) -> Value:
        return self.fma(self.builder.fneg(a), b, c)

    def magnitude(self, a: Value) -> Value:
        return self.call(f"llvm.fabs.v{self.lanes}f32", a)

    def min(self, a: Value, b: Value) -> Value:
        """`b` where either is nan."""
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def max(self, a: Value, b: Value) -> Value:
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def by_sign(self, x: Value, negative: Value, positive: Value) -> Value:
        return self.builder.select(self.builder.icmp_signed("<", self.bits(x), self.set_bits(0)), negative, positive)

    def any_ge8(self, a: Value, b: Value) -> Value:
        """Whether any lane of a or b is 8 or more; all are at least 4, so the bit tells. nan answers yes."""
        both = self.builder.and_(self.builder.or_(self.bits(a), self.bits(b)), self.set_bits(0x3F000000))
        lanes = self.builder.icmp_unsigned("!=", both, self.set_bits(0))
        mask = self.builder.bitcast(lanes, ir.IntType(self.lanes))
        return self.builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, 0))

    def index(self, z: Value) -> Value:
        return self.builder.lshr(self.bits(z), self.set_bits(self.index_shift))

    def lookup_near(self, column: list[float], index: Value) -> Value:
        """Of each lane's segment, all being in the first half."""
        raise NotImplementedError

    def lookup_any(self, column: list[float], index: Value) -> Value:
        """Of each lane's segment; a column is ordered by z from 4 to 16."""
        raise NotImplementedError

    def exp2_eighths(self, table: list[float], m: Value) -> Value:
        """A power of two for m = n + magic, which `scaled_ge8` completes; `table` holds 2^0, 2^(1/8), … times a
        constant."""
        raise NotImplementedError

    def scaled_ge8(self, z: Value, other: Value, p: Value, n: Value) -> Value:
        """p by the rest of 2^n, rounding a subnormal once, where z >= 8; else `other`."""
        raise NotImplementedError


class AVX512(Vectors):
    lanes, layout, magic, index_shift = 16, "f32x32", 1.5 * 2.0**20, 19
    features = ("avx512f", "avx512dq", "avx512bw", "avx512vl")

    def lookup_near(self, column: list[float], index: Value) -> Value:
        return self.call("llvm.x86.avx512.permvar.sf.512", self.numbers(column[:16]), index)

    def lookup_any(self, column: list[float], index: Value) -> Value:
        # The index's fifth bit is 0 for z >= 8.
        high, low = self.numbers(column[16:]), self.numbers(column[:16])
        return self.call("llvm.x86.avx512.vpermi2var.ps.512", high, index, low)

    def exp2_eighths(self, table: list[float], m: Value) -> Value:
        return self.call("llvm.x86.avx512.permvar.sf.512", self.numbers(table * 2), self.bits(m))

    def scaled_ge8(self, z: Value, other: Value, p: Value, n: Value) -> Value:
        far = self.builder.bitcast(self.builder.fcmp_ordered(">=", z, self.set(8.0)), ir.IntType(16))
        rounding = ir.Constant(_INT, 4)  # as the environment says
        return self.call("llvm.x86.avx512.mask.scalef.ps.512", p, n, other, far, rounding)


class AVX2(Vectors):
    lanes, layout, magic, index_shift = 8, "f32", 1.5 * 2.0**20 + 64, 21
    features = ("avx2", "fma")

    def lookup_near(self, column: list[float], index: Value) -> Value:
        return self.call("llvm.x86.avx.vpermilvar.ps.256", self.numbers(column[:4] * 2), index)

    def lookup_any(self, column: list[float], index: Value) -> Value:
        return self.call("llvm.x86.avx2.permps", self.numbers(column[4:] + column[:4]), index)

    def exp2_eighths(self, table: list[float], m: Value) -> Value:
        fraction = self.bits(self.call("llvm.x86.avx2.permps", self.numbers(table), self.bits(m)))
        power = self.builder.shl(self.bits(m), self.set_bits(20))
        return self.from_bits(self.builder.add(fraction, self.builder.and_(power, self.set_bits(0xFF800000))))

    def scaled_ge8(self, z: Value, other: Value, p: Value, n: Value) -> Value:
        far = self.builder.fcmp_ordered(">=", z, self.set(8.0))
        return self.builder.select(far, self.mul(p, self.set(2.0**-64)), other)


def chosen(features: str) -> type[Vectors] | None:
    """The widest that a CPU has, by LLVM's list of its features; None where the scalar formulas have to do."""
    has = set(features.split(","))
    return next((isa for isa in (AVX512, AVX2) if has.issuperset(f"+{f}" for f in isa.features)), None)
