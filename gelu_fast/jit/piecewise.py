"""The array kernels' float32 loops: cpu/gelu_math.h and cpu/loops.h in LLVM vectors, over the same tables.

Why not the branch-free formulas, which a user's own loop gets (normal.py, logistic.py): they need the exponential for
every number. Here vectors whose numbers are all small in size take a polynomial whose coefficients are looked up in
registers, and no more; the others take the tail's formula beside it, lane by lane. Operations and tables are the C
kernel's of the same instruction set, one by one, so that every bit is the same, and the bounds that were proven for it
hold (tests/test_jit_vectors.py compares).

Measured (float32, exact form, one thread of Zen 4, microseconds for 262,144 numbers of N(0,1); torch 144, the C kernel
62): 57 to 63. Tried before, as LLVM vectorises it from scalars, near part alone and in registers: four polynomials of
degree 7, chosen by comparison and blend, 131; three of degree 8, 111; two of degree 10, 102 to 118, at 1.9 ULP. With
the coefficients as constants of the code 5 more: in the code model that Numba compiles for, each is an address of ten
bytes. A blend costs 0.6 of a multiplication there, and there are as many of them.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from gelu_fast import coefficients

from .vectors import Value, Vectors, chosen

_COUNT = ir.IntType(64)


def isa() -> type[Vectors] | None:
    """The instruction set of the loops on this machine, or None where there are none."""
    return chosen(cpu_target.target_context.codegen().magic_tuple()[2])


def _number(text: str) -> float:
    return float.fromhex(text)


@cache
def _table(layout: str, form: str, order: int) -> SimpleNamespace:
    """Columns, one per coefficient with the centres first, and the rest; as floats."""
    found: dict[str, Any] = getattr(coefficients, f"{layout.upper()}_TABLES")[form, order]
    rows = [[_number(text) for text in row] for row in found["rows"]]
    columns = [list(column) for column in zip(*rows, strict=True)]
    numbers = {key: _number(str(found[key])) for key in ("scale", "offset", "t_max")}
    return SimpleNamespace(columns=columns, careful=found["careful"], **numbers)


@cache
def _constants() -> tuple[SimpleNamespace, list[float], list[float]]:
    """The exponential's constants, its polynomial and its eighths."""
    exp: dict[str, Any] = coefficients.F32_EXP
    constants = {key.lower(): _number(text) for key, text in coefficients.F32_CONSTANTS.items()}
    return SimpleNamespace(**constants), list(map(_number, exp["coefs"])), list(map(_number, exp["table"]))


class Formula:
    """One of the nine functions on vectors; gelu_math.h has the explanations."""

    def __init__(self, v: Vectors, form: str, order: int) -> None:
        self.v, self.form, self.order = v, form, order
        self.table = _table(v.layout, form, order)

    def z(self, x: Value) -> Value:
        v = self.v
        return v.fma(v.magnitude(x), v.set(self.table.scale), v.set(self.table.offset))

    def near(self, x: Value, z: Value) -> Value:
        return self._combine(x, self._polynomial(self.v.magnitude(x), self.v.index(z), self.v.lookup_near))

    def any(self, x: Value, z: Value) -> Value:
        v = self.v
        t = v.min(v.set(self.table.t_max), v.magnitude(x))
        index = v.index(v.min(v.set(float.fromhex("0x1.fffffep3")), z))
        return self._combine(x, self._times_exp(self._polynomial(t, index, v.lookup_any), t, z))

    def _polynomial(self, t: Value, index: Value, lookup: Any) -> Value:
        v, columns = self.v, self.table.columns
        u, q = v.sub(t, lookup(columns[0], index)), lookup(columns[-1], index)
        for column in columns[-2:2:-1]:
            q = v.fma(q, u, lookup(column, index))
        c0, c1 = lookup(columns[1], index), lookup(columns[2], index)
        last = v.fma(q, u, c1)
        if self.table.careful:
            c0 = v.fma(v.fms(q, u, v.sub(last, c1)), u, c0)
        return v.fma(last, u, c0)

    def _times_exp(self, p: Value, t: Value, z: Value) -> Value:
        v, (k, exp, eighths) = self.v, _constants()
        b, more = t, None
        if self.form == "quick":
            b, more = v.set(k.quick_hi), v.set(k.quick_lo)
        elif self.form == "tanh":
            cubic, slope, s = v.set(k.tanh_cubic_hi), v.set(k.tanh_slope_hi), v.mul(t, t)
            b = v.fma(cubic, s, slope)
            more = v.fma(v.set(k.tanh_cubic_lo), s, v.set(k.tanh_slope_lo))
            more = v.fma(cubic, v.fms(t, t, s), more)
            more = v.add(more, v.fms(cubic, s, v.sub(b, slope)))
        w = v.fma(t, b, v.set(k.ln4_hi / 16))
        m = v.fnma(w, v.set(k.inv_ln4), v.set(v.magic))
        n = v.sub(m, v.set(v.magic))
        r = v.fnma(t, b, v.mul(n, v.set(-k.ln4_hi)))
        r = v.fnma(n, v.set(k.ln4_lo), r)
        if more is not None:
            r = v.fnma(t, more, r)
        q = v.set(exp[-1])
        for coefficient in exp[-2:0:-1]:
            q = v.fma(q, r, v.set(coefficient))
        power = v.exp2_eighths(eighths, m)
        q = v.mul(v.mul(q, r), power)
        return v.scaled_ge8(z, p, v.fma(p, power, v.mul(p, q)), n)

    def _combine(self, x: Value, f: Value) -> Value:
        v = self.v
        if self.order == 0:
            return v.sub(v.max(v.set(-0.0), x), f)
        return v.by_sign(x, f, v.sub(v.set(1.0), f)) if self.order == 1 else f


def _pair(formula: Formula, inputs: list[Value], out: Value) -> None:
    """Two vectors from the addresses `inputs`, of which the last is x and one before it multiplies, to that of out."""
    v, builder = formula.v, formula.v.builder

    def both(address: Value) -> list[Value]:
        return [v.load(builder.gep(address, [ir.Constant(_COUNT, k * v.lanes)])) for k in range(2)]

    *factors, xs = map(both, inputs)
    zs = [formula.z(x) for x in xs]

    def finish(of: Any) -> None:
        results = [of(x, z) for x, z in zip(xs, zs, strict=True)]
        for factor in factors:
            results = [v.mul(dy, y) for dy, y in zip(factor, results, strict=True)]
        for k, y in enumerate(results):
            v.store(builder.gep(out, [ir.Constant(_COUNT, k * v.lanes)]), y)

    with builder.if_else(v.any_ge8(*zs), likely=False) as (far, near):
        with far:
            finish(formula.any)
        with near:
            finish(formula.near)


def _loop(formula: Formula, inputs: list[Value], out: Value, start: Value, stop: Value) -> None:
    """The numbers from start to stop; what is left of whole pairs goes through the same instructions in a buffer."""
    builder, step = formula.v.builder, ir.Constant(_COUNT, 2 * formula.v.lanes)
    length = builder.sub(stop, start)
    whole = builder.sub(length, builder.urem(length, step))
    end = builder.add(start, whole)
    with cgutils.for_range_slice(builder, start, end, step, intp=_COUNT) as (i, _):
        _pair(formula, [builder.gep(a, [i]) for a in inputs], builder.gep(out, [i]))
    rest = builder.sub(length, whole)
    with builder.if_then(builder.icmp_unsigned("!=", rest, ir.Constant(_COUNT, 0))):
        type_ = ir.ArrayType(ir.FloatType(), 2 * formula.v.lanes)
        zero = ir.Constant(_COUNT, 0)
        buffers = [cgutils.alloca_once(builder, type_) for _ in inputs]
        for address, buffer in zip(inputs, buffers, strict=True):
            builder.store(ir.Constant(type_, None), buffer)
            with cgutils.for_range(builder, rest, intp=_COUNT) as inside:
                value = builder.load(builder.gep(address, [builder.add(end, inside.index)]))
                builder.store(value, builder.gep(buffer, [zero, inside.index]))
        first = [builder.gep(buffer, [zero, zero]) for buffer in buffers]
        _pair(formula, first, first[-1])
        with cgutils.for_range(builder, rest, intp=_COUNT) as inside:
            value = builder.load(builder.gep(buffers[-1], [zero, inside.index]))
            builder.store(value, builder.gep(out, [builder.add(end, inside.index)]))


@cache
def span(name: str) -> Any:
    """An intrinsic by the function's name, or None where this machine has no such loops.

    ``f(x, out, start, stop)``, or ``f(dy, x, out, start, stop)`` for ``…_backward``, writes out[start:stop]: contiguous
    float32 arrays; `out` may be `x`, or apart.
    """
    kind = isa()
    if kind is None:
        return None
    stem = name.removesuffix("_backward").removesuffix("_grad2").removesuffix("_grad")
    form = {"gelu": "none", "gelu_tanh": "tanh", "gelu_quick": "quick"}[stem]
    order = {"": 0, "_grad": 1, "_backward": 1, "_grad2": 2}[name.removeprefix(stem)]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        *arrays, start, stop = args
        data = [context.make_array(t)(context, builder, a).data for t, a in zip(signature.args, arrays, strict=False)]
        _loop(Formula(kind(builder), form, order), data[:-1], data[-1], start, stop)
        return context.get_dummy_value()

    def unary(typingctx, x, out, start, stop):
        return types.void(x, out, types.intp, types.intp), codegen

    def product(typingctx, dy, x, out, start, stop):
        return types.void(dy, x, out, types.intp, types.intp), codegen

    return intrinsic(product if name.endswith("_backward") else unary)
