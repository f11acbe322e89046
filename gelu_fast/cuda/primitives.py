"""What the formulas are written against (jit/primitives.py is the CPU's version), for the CUDA compiler; and memory.

Memory is an address, an int64: 16 bytes move as ``<4 x i32>``, which the compiler turns into one ld/st.global.v4, and
are taken apart in registers. Arrays of Numba's would cost seven kernel parameters each, and know no bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

from gelu_fast import instructions
from gelu_fast.instructions import Codegen

_I16, _I32, _F32, _F64 = ir.IntType(16), ir.IntType(32), ir.FloatType(), ir.DoubleType()
_VECTOR = ir.VectorType(_I32, 4)


def function(python_function: Callable[..., Any]) -> Any:
    """A piece of a kernel, inlined by Numba: what it compiles apart asks for a driver, even on the way to PTX."""
    return cuda.jit(device=True, inline="always")(python_function)


outer = function


@intrinsic
def strict(typingctx: Any, a: Any) -> Codegen:
    """`a`; and no product of the function built so far is fused with a sum.

    The compiler contracts a*b + c by default, numba-cuda has no option against it, and formulas that carry rounding
    errors along come out wrong then. So each product becomes what CUDA C calls __fmul_rn.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        new = {}
        for block in builder.function.blocks:
            for at, old in enumerate(block.instructions):
                if getattr(old, "opname", "") == "fmul":
                    product = _mul_rn(builder.module, old.type)
                    new[old] = block.instructions[at] = ir.CallInstr(block, product, old.operands, name=old.name)
        for block in builder.function.blocks:
            for user in block.instructions:
                for old in [operand for operand in user.operands if isinstance(operand, ir.Instruction)]:
                    if old in new:
                        user.replace_usage(old, new[old])
                if isinstance(user, ir.instructions.InsertValue):  # it keeps its operands a second time
                    user.aggregate, user.value = user.operands
        return new.get(args[0], args[0])

    return a(a), codegen


def _mul_rn(module: Any, number: Any) -> Any:
    return _declared(module, "llvm.nvvm.mul.rn." + ("d" if number == _F64 else "f"), number, [number, number])


def _declared(module: Any, name: str, result: Any, parameters: list[Any]) -> Any:
    found = module.globals.get(name)
    return found or ir.Function(module, ir.FunctionType(result, parameters), name)


fma = intrinsic(instructions.fma)


@intrinsic
def div(typingctx: Any, a: Any, b: Any) -> Codegen:
    """a / b; in float32 within 0.51 ULP for |b| in 2^±100, which is all the formulas need, at a third of the cost."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if args[0].type == _F64:
            return builder.fdiv(*args)
        numerator, denominator = args
        near = _asm(builder, "rcp.approx.ftz.f32", "=f,f", _F32, [denominator])
        quotient = builder.call(_mul_rn(builder.module, _F32), [numerator, near])
        return builder.fma(builder.fma(builder.fsub(_F32(-0.0), denominator), quotient, numerator), near, quotient)

    return a(a, a), codegen


@intrinsic
def exp2(typingctx: Any, a: Any) -> Codegen:
    """2^a in float32, within 2^-22, for a result that is no subnormal."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _asm(builder, "ex2.approx.ftz.f32", "=f,f", _F32, list(args))

    return a(a), codegen


@intrinsic
def magnitude(typingctx: Any, a: Any) -> Codegen:
    """|a|."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # NVVM knows no llvm.fabs
        name = "llvm.nvvm.fabs." + ("d" if args[0].type == _F64 else "f")
        return builder.call(_declared(builder.module, name, args[0].type, [args[0].type]), args)

    return a(a), codegen


@intrinsic
def polynomial(typingctx: Any, u: Any, coefs: Any) -> Codegen:
    """coefs[0] + u*(coefs[1] + u*(...)) by fma: the fewest operations, and other threads fill the waits."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at, numbers = args
        last = signature.args[1].count - 1
        total = builder.extract_value(numbers, last)
        for k in range(last - 1, -1, -1):
            total = builder.fma(total, at, builder.extract_value(numbers, k))
        return total

    return u(u, coefs), codegen


low_bits_as_exponent = intrinsic(instructions.low_bits_as_exponent)

# Only formulas.make_wide uses them: device.py replaces what that makes.
widen = narrow = None


def _pointer(builder: Any, address: Any, element: Any) -> Any:
    return builder.inttoptr(address, ir.PointerType(element, addrspace=1))


def _to_float(builder: Any, dtype: str, bits: Any) -> Any:
    """16 bits as float32."""
    if dtype == "bfloat16":
        return builder.bitcast(builder.shl(builder.zext(bits, _I32), _I32(16)), _F32)
    return builder.fpext(builder.bitcast(bits, ir.HalfType()), _F32)


def _both(builder: Any, dtype: str, word: Any) -> tuple[Any, Any]:
    """The two numbers of 16 bits in a word, as float32."""
    if dtype == "bfloat16":
        pair = builder.shl(word, _I32(16)), builder.and_(word, _I32(0xFFFF0000))
        return builder.bitcast(pair[0], _F32), builder.bitcast(pair[1], _F32)
    low, high = builder.trunc(word, _I16), builder.trunc(builder.lshr(word, _I32(16)), _I16)
    return _to_float(builder, dtype, low), _to_float(builder, dtype, high)


def _asm(builder: Any, instruction: str, constraint: str, result: Any, operands: list[Any]) -> Any:
    places = ", ".join(f"${k}" for k in range(len(operands) + 1))
    assembly = ir.InlineAsm(
        ir.FunctionType(result, [operand.type for operand in operands]), f"{instruction} {places};", constraint
    )
    return builder.call(assembly, operands)


def _rounded(builder: Any, dtype: str, number: Any) -> Any:
    """float32 rounded to 16 bits, to nearest even."""
    if dtype == "float16":
        return builder.bitcast(builder.fptrunc(number, ir.HalfType()), _I16)
    bits = builder.bitcast(number, _I32)
    odd = builder.and_(builder.lshr(bits, _I32(16)), _I32(1))
    up = builder.lshr(builder.add(builder.add(bits, odd), _I32(0x7FFF)), _I32(16))
    nan = builder.fcmp_unordered("uno", number, number)
    return builder.trunc(builder.select(nan, _I32(0x7FFF), up), _I16)


def make_memory(dtype: str, packed: bool) -> dict[str, Any]:
    """load(address), store(address, number), load_vector, store_vector: 16 bytes as a tuple of numbers.

    packed: whether the device is of compute capability 8.0 or above, which rounds two numbers in one instruction.
    """
    wide = {"float32": _F32, "float64": _F64}.get(dtype)
    number = types.float64 if dtype == "float64" else types.float32
    count = 16 // {"float32": 4, "float64": 8}.get(dtype, 2)
    cell = wide or _I16
    pair = "cvt.rn.bf16x2.f32" if dtype == "bfloat16" else "cvt.rn.f16x2.f32"

    @intrinsic
    def load(typingctx: Any, address: Any) -> Codegen:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            found = builder.load(_pointer(builder, args[0], cell), align=2 if wide is None else number.bitwidth // 8)
            return found if wide else _to_float(builder, dtype, found)

        return number(types.int64), codegen

    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Codegen:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = args[1] if wide else _rounded(builder, dtype, args[1])
            builder.store(given, _pointer(builder, args[0], cell), align=2 if wide is None else number.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(types.int64, number), codegen

    @intrinsic
    def load_vector(typingctx: Any, address: Any) -> Codegen:
        result = types.UniTuple(number, count)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = builder.load(_pointer(builder, args[0], _VECTOR), align=16)
            if wide:
                parts = builder.bitcast(vector, ir.VectorType(cell, count))
                numbers = [builder.extract_element(parts, _I32(k)) for k in range(count)]
            else:  # as <8 x i16> it would be loaded in two pieces
                words = [builder.extract_element(vector, _I32(k)) for k in range(4)]
                numbers = [number for word in words for number in _both(builder, dtype, word)]
            return context.make_tuple(builder, result, numbers)

        return result(types.int64), codegen

    @intrinsic
    def store_vector(typingctx: Any, address: Any, values: Any) -> Codegen:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            numbers = [builder.extract_value(args[1], k) for k in range(count)]
            if packed and not wide:
                cells = [_asm(builder, pair, "=r,f,f", _I32, [numbers[k + 1], numbers[k]]) for k in range(0, count, 2)]
            else:
                cells = numbers if wide else [_rounded(builder, dtype, n) for n in numbers]
            parts = ir.Constant(ir.VectorType(cells[0].type, len(cells)), ir.Undefined)
            for k, part in enumerate(cells):
                parts = builder.insert_element(parts, part, _I32(k))
            builder.store(builder.bitcast(parts, _VECTOR), _pointer(builder, args[0], _VECTOR), align=16)
            return context.get_dummy_value()

        return types.void(types.int64, types.UniTuple(number, count)), codegen

    return {"load": load, "store": store, "load_vector": load_vector, "store_vector": store_vector}


def make_scatter(dtype: str, count: int) -> Any:
    """scatter(address, numbers): `count` float32 or float64, wherever they may be stored one by one."""
    cell, number = (_F32, types.float32) if dtype == "float32" else (_F64, types.float64)

    @intrinsic
    def scatter(typingctx: Any, address: Any, values: Any) -> Codegen:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(builder, args[0], cell)
            for k in range(count):
                place = builder.gep(pointer, [_I32(k)])
                builder.store(builder.extract_value(args[1], k), place, align=number.bitwidth // 8)
            return context.get_dummy_value()

        return types.void(types.int64, types.UniTuple(number, count)), codegen

    return scatter
