"""Front door: any layout of inputs and out gives the bits of the contiguous copy, and nothing but out is written."""

import contextlib

import numpy as np
import pytest
from functions import DTYPES, FORMS, UNARY, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import LARGE_SHAPES, LENGTHS, LONG, PROFILE, SEEDS, Placed, dtypes, placed, plain, shapes, values

import gelu_fast as gf

forms, unary = st.sampled_from(FORMS), st.sampled_from(UNARY)
INTEGERS = ("?", "b", "B", "h", "H", "i", "I", "q", "Q")


@contextlib.contextmanager
def only_written(*allowed, inputs=()):
    """Inside, the memory of `inputs` stays, and of `allowed` everything but the elements."""
    before = [p.memory.copy() for p in (*allowed, *inputs)]
    yield
    for p, memory in zip(allowed, before, strict=False):
        assert p.untouched_around(memory), "written beside out"
    for p, memory in zip(inputs, before[len(allowed) :], strict=True):
        assert np.array_equal(p.memory, memory), "an input was written"


def checked(call, want, inputs, data, out_shape, dtype):
    """Without out, and with one somewhere else: the same bits, and nothing else written."""
    with only_written(inputs=inputs):
        same_bits(call(None), want)
    out = data.draw(placed(out_shape, dtype, writeable=True), "out")
    with only_written(out, inputs=inputs):
        assert call(out.array) is out.array
    same_bits(plain(out.array), want)


@PROFILE
@given(unary, dtypes, shapes(), st.data())
def test_unary(case, dtype, shape, data):
    function, form = case
    x = data.draw(placed(shape, dtype), "x")
    want = np.asarray(function(plain(x.array), form))
    checked(lambda out: function(x.array, form, out=out), want, [x], data, shape, dtype)
    with only_written(inputs=[x]):
        value, slope = gf.gelu_with_grad(x.array, form)
    same_bits(value, gf.gelu(plain(x.array), form))
    same_bits(slope, gf.gelu_grad(plain(x.array), form))


@settings(PROFILE, max_examples=500 if LONG else 15)
@given(unary, dtypes, LARGE_SHAPES, st.integers(1, 5), st.data())
def test_large(case, dtype, shape, count, data):
    """On several threads."""
    function, form = case
    x, dy = data.draw(placed(shape, dtype), "x"), data.draw(placed(shape, dtype), "dy")
    with gf.num_threads(1):
        want, slope = function(plain(x.array), form), gf.gelu_backward(plain(dy.array), plain(x.array), form)
        fused = gf.bias_gelu(plain(x.array), plain(dy.array[(0,) * (len(shape) - 1)]), form)
    with gf.num_threads(count):
        checked(lambda out: function(x.array, form, out=out), want, [x], data, shape, dtype)
        checked(lambda out: gf.gelu_backward(dy.array, x.array, form, out=out), slope, [dy, x], data, shape, dtype)
        bias = dy.array[(0,) * (len(shape) - 1)]
        checked(lambda out: gf.bias_gelu(x.array, bias, form, out=out), fused, [dy, x], data, shape, dtype)


@settings(PROFILE, max_examples=500 if LONG else 15)
@given(unary, dtypes, st.integers(1, 5), st.sampled_from([-4000, -50, -1, 0, 1, 9]), st.booleans(), st.booleans(),
       SEEDS)  # fmt: skip
def test_large_overlap(case, dtype, count, shift, reverse, backwards, seed):
    """out over the input, on several threads: ahead, behind, element on element, and turned round."""
    function, form = case
    n = 130_001
    room = values(seed, n + 8200, dtype)
    x, out = room[4100 : 4100 + n], room[4100 + shift :][:n]
    x, out = x[:: -1 if reverse else 1], out[:: -1 if backwards else 1]
    around = [room[: 4100 + shift].copy(), room[4100 + shift + n :].copy()]
    with gf.num_threads(1):
        want = function(plain(x), form)
    with gf.num_threads(count):
        function(x, form, out=out)
    same_bits(out, want)
    same_bits(room[: 4100 + shift], around[0])
    same_bits(room[4100 + shift + n :], around[1])


@PROFILE
@given(unary, st.sampled_from(INTEGERS), shapes(), SEEDS)
def test_integers(case, code, shape, seed):
    function, form = case
    x = np.random.default_rng(seed).integers(-(2**63), 2**63, shape, np.int64).astype(code).T
    same_bits(function(x, form), function(plain(x).astype(np.sin(x).dtype), form))


@PROFILE
@given(forms, dtypes, dtypes, shapes(), st.data())
def test_backward(form, dy_dtype, x_dtype, shape, data):
    """Broadcast and promoted against each other."""
    if data.draw(st.booleans()):
        dy_dtype = x_dtype
    cut = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    narrow = tuple(1 if c else n for c, n in zip(cut, shape, strict=True))[data.draw(st.integers(0, len(shape))) :]
    one, other = data.draw(st.permutations([shape, narrow]))
    dy, x = data.draw(placed(one, dy_dtype), "dy"), data.draw(placed(other, x_dtype), "x")
    both_16_bit = {dy_dtype, x_dtype} == {np.float16, DTYPES[1]}
    common = np.float32 if both_16_bit else np.result_type(dy_dtype, x_dtype)
    with np.errstate(all="ignore"):  # NumPy's casts of nans
        wide = [plain(np.broadcast_to(plain(a.array).astype(common), shape)) for a in (dy, x)]
        want = np.asarray(gf.gelu_backward(*wide, form))
        checked(lambda out: gf.gelu_backward(dy.array, x.array, form, out=out), want, [dy, x], data, shape, common)


@PROFILE
@given(forms, dtypes, shapes(least=1), st.sampled_from(["second", "first"]), st.data())
def test_fused(form, dtype, shape, gate, data):
    """By columns, any layout; bias, dy and out too."""
    x, dy = data.draw(placed(shape, dtype), "x"), data.draw(placed(shape, dtype), "dy")
    bias = data.draw(placed(shape[-1:], dtype), "bias")
    a, d, b = plain(x.array), plain(dy.array), plain(bias.array)
    want = gf.bias_gelu(a, b, form)
    checked(lambda out: gf.bias_gelu(x.array, bias.array, form, out=out), want, [x, bias], data, shape, dtype)
    with only_written(inputs=[dy, x, bias]):
        found = gf.bias_gelu_backward(dy.array, x.array, bias.array, form)
    for one, other in zip(found, gf.bias_gelu_backward(d, a, b, form), strict=True):
        same_bits(one, other)

    both = data.draw(placed((*shape[:-1], 2 * shape[-1]), dtype), "both")
    w = plain(both.array)
    want = gf.geglu(w, form, gate=gate)
    checked(lambda out: gf.geglu(both.array, form, gate=gate, out=out), want, [both], data, shape, dtype)
    want = gf.geglu_backward(d, w, form, gate=gate)
    checked(lambda out: gf.geglu_backward(dy.array, both.array, form, gate=gate, out=out), want, [dy, both], data,
            both.array.shape, dtype)  # fmt: skip


@st.composite
def overlapping(draw, dtype, count, alike=False):
    """`count` writeable views of one memory, of one shape, with any offsets, steps and directions."""
    n, rows = draw(st.one_of(LENGTHS, st.sampled_from([600, 2100]))), draw(st.integers(1, 3))
    size = np.dtype(dtype).itemsize
    memory = np.full(8 * (n + 8) * (rows + 2) * size + 128, 0xA5, np.uint8)
    body = memory[64:-64].view(dtype)
    body[...] = values(draw(SEEDS), body.size, dtype)
    found = []
    for _ in range(count):
        if alike and found and draw(st.booleans()):
            found.append(found[0])
            continue
        step, row = draw(st.sampled_from([1, 1, 1, 2, -1, -2])), draw(st.sampled_from([n, n + 1, 2 * n + 3, 1]))
        if row < abs(step) * n and draw(st.integers(0, 3)):  # rows seldom lie over each other, and never in out: below
            row = abs(step) * n
        first = draw(st.integers(0, 8)) + (abs(step) * n if step < 0 else 0)
        shape, strides = (rows, n), (row * size, step * size)
        if draw(st.booleans()) and rows > 1:
            strides = (step * size, abs(step) * max(rows, 1) * size)
            first += rows * abs(step)
        view = np.ndarray(shape, dtype, memory, 64 + first * size, strides)
        found.append(Placed(view, memory))
    return found


def selfless(array):
    """Whether no two elements of it share memory."""
    at = np.zeros(array.shape, int)
    for k, (n, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        at += (np.arange(n) * stride).reshape([n if k == j else 1 for j in range(array.ndim)])
    return len(np.unique(at)) == at.size


@PROFILE
@given(unary, dtypes, st.data())
def test_overlap(case, dtype, data):
    """out over the inputs, in any way: as if the inputs had been copied first."""
    function, form = case
    x, dy, out = data.draw(overlapping(dtype, 3, alike=True))
    if not selfless(out.array):
        return
    a, d, memory = plain(x.array), plain(dy.array), out.memory.copy()
    bias = np.array(a[0])
    calls = [
        (function(a, form), lambda: function(x.array, form, out=out.array)),
        (gf.gelu_backward(d, a, form), lambda: gf.gelu_backward(dy.array, x.array, form, out=out.array)),
        (gf.bias_gelu(a, bias, form), lambda: gf.bias_gelu(x.array, bias, form, out=out.array)),
        (gf.bias_gelu(a, bias, form), lambda: gf.bias_gelu(x.array, x.array[0], form, out=out.array)),
        (gf.gelu_backward(d[:1], a, form), lambda: gf.gelu_backward(dy.array[:1], x.array, form, out=out.array)),
    ]
    if a.shape[-1] % 2 == 0:
        half = a.shape[-1] // 2
        calls += [
            (gf.geglu(a, form), lambda: gf.geglu(x.array, form, out=out.array[:, :half])),
            (gf.geglu_backward(d[:, half:], a, form),
             lambda: gf.geglu_backward(dy.array[:, half:], x.array, form, out=out.array)),
        ]  # fmt: skip
    for want, call in calls:
        found = call()
        same_bits(found.copy(), want)
        part = Placed(found, out.memory)
        assert part.untouched_around(memory)
        out.memory[...] = memory


@PROFILE
@given(dtypes, dtypes, shapes(least=1), st.data())
def test_refused_out(dtype, other, shape, data):
    """Another shape, another dtype, read-only: an error, and nothing written."""
    x = data.draw(placed(shape, dtype), "x")
    kind = data.draw(st.sampled_from(["shape", "dtype", "read-only"]))
    if kind == "shape":
        out = data.draw(placed((*shape[:-1], shape[-1] + 1), dtype, writeable=True))
    elif kind == "dtype":
        if other == dtype:
            other = next(d for d in DTYPES if d != dtype)
        out = data.draw(placed(shape, other, writeable=True))
    else:
        out = data.draw(placed(shape, dtype, writeable=True))
        out.array.flags.writeable = False
    bias = np.zeros(shape[-1], dtype)
    both = np.zeros((*shape[:-1], 2 * shape[-1]), dtype)
    with only_written(inputs=[x, out]):
        for call in (
            lambda: gf.gelu(x.array, out=out.array), lambda: gf.gelu_grad2(x.array, "tanh", out=out.array),
            lambda: gf.gelu_backward(x.array, x.array, out=out.array),
            lambda: gf.bias_gelu(x.array, bias, out=out.array), lambda: gf.geglu(both, out=out.array),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=r"^out: "):
                call()
        if out.array.shape != both.shape:
            with pytest.raises(ValueError, match=r"^out: "):
                gf.geglu_backward(x.array, both, out=out.array)
