"""The bare ufuncs under NumPy's own arguments: where, out, casting, dtype, order; the methods they have and lack."""

import functools

import numpy as np
import pytest
from functions import DTYPES, same_bits
from hypothesis import given
from hypothesis import strategies as st
from layouts import PROFILE, SEEDS, dtypes, placed, plain, shapes, values

import gelu_fast as gf

UFUNCS = [getattr(gf.ufuncs, name) for name in gf.ufuncs.__all__]
PRODUCTS = [f for f in UFUNCS if f.nin == 2]
ufuncs, products = st.sampled_from(UFUNCS), st.sampled_from(PRODUCTS)


def operands(function, dtype, shape, data):
    inputs = [data.draw(placed(shape, dtype), f"input {k}") for k in range(function.nin)]
    wanted = function(*(plain(p.array) for p in inputs))
    return inputs, [np.asarray(w) for w in (wanted if function.nout == 2 else (wanted,))]


@PROFILE
@given(ufuncs, dtypes, shapes(), st.data())
def test_where(function, dtype, shape, data):
    """Elements that are not wanted keep their bytes, as does all around."""
    inputs, wanted = operands(function, dtype, shape, data)
    outs = [data.draw(placed(shape, dtype, writeable=True), "out") for _ in wanted]
    mask = np.random.default_rng(data.draw(SEEDS)).random(shape) < data.draw(st.sampled_from([0, 0.1, 0.5, 0.9, 1]))
    if shape and data.draw(st.booleans()):
        mask = mask[..., :1]
    before = [(p.memory.copy(), plain(p.array)) for p in outs]
    sources = [p.memory.copy() for p in inputs]
    found = function(*(p.array for p in inputs), out=tuple(p.array for p in outs), where=mask)
    for result, out in zip(found if function.nout == 2 else (found,), outs, strict=True):
        assert result is out.array
    for out, want, (memory, old) in zip(outs, wanted, before, strict=True):
        same_bits(plain(out.array), np.where(mask, want, old))
        assert out.untouched_around(memory)
    for p, memory in zip(inputs, sources, strict=True):
        assert np.array_equal(p.memory, memory)


@PROFILE
@given(ufuncs, dtypes, dtypes, shapes(), st.sampled_from(["no", "equiv", "safe", "same_kind", "unsafe"]), st.data())
def test_casting(function, dtype, other, shape, casting, data):
    """An out of another dtype takes the result cast, or is refused: as NumPy says, and then nothing is written."""
    inputs, wanted = operands(function, dtype, shape, data)
    outs = [data.draw(placed(shape, other, writeable=True), "out") for _ in wanted]
    memories = [p.memory.copy() for p in outs]
    native = np.dtype(dtype)
    allowed = all(np.can_cast(p.array.dtype, native, casting) for p in inputs)
    allowed &= all(np.can_cast(native, p.array.dtype, casting) for p in outs)
    with np.errstate(all="ignore"):  # NumPy's cast of the result may overflow
        call = functools.partial(function, *(p.array for p in inputs), out=tuple(p.array for p in outs),
                                 casting=casting, dtype=native)  # fmt: skip
        if allowed:
            call()
        else:
            with pytest.raises(TypeError):
                call()
        for out, want, memory in zip(outs, wanted, memories, strict=True):
            if allowed:
                same_bits(plain(out.array), want.astype(other))
                assert out.untouched_around(memory)
            else:
                assert np.array_equal(out.memory, memory)


@PROFILE
@given(products, dtypes, st.lists(st.sampled_from([1, 2, 3, 17, 600]), min_size=1, max_size=2), SEEDS)
def test_folds(function, dtype, shape, seed):
    """reduce and accumulate of dy times f': of no use, but right; each step needs the one before it."""
    x = values(seed | 1, int(np.prod(shape)), dtype).reshape(shape)
    one_by_one = list(x[:1])
    for row in x[1:]:
        one_by_one.append(np.asarray(function(one_by_one[-1], row)))
    same_bits(function.accumulate(x), np.array(one_by_one, dtype))
    same_bits(function.reduce(x), np.array(one_by_one[-1], dtype))
    cuts = [0, len(x) // 2]
    folded = [functools.reduce(function, x[a : (b if a < b else a + 1)]) for a, b in zip(cuts, [*cuts[1:], len(x)],
                                                                                     strict=True)]  # fmt: skip
    same_bits(function.reduceat(x, cuts), np.array(folded, dtype))
    flat = x.ravel()[:20]
    same_bits(function.outer(flat, flat), function(flat[:, None], flat))


@PROFILE
@given(dtypes, st.integers(1, 600), SEEDS)
def test_at(dtype, n, seed):
    """In place at indices, repeated ones in turn."""
    rng = np.random.default_rng(seed)
    x, indices = values(seed, n, dtype), rng.integers(0, n, 30)
    expected = x.copy()
    for i in indices:
        expected[i] = gf.ufuncs.gelu(expected[i : i + 1])[0]
    gf.ufuncs.gelu.at(x, indices)
    same_bits(x, expected)


@pytest.mark.parametrize("function", UFUNCS, ids=lambda f: f.__name__)
def test_methods_that_need_two_inputs(function):
    x = np.ones(4, np.float32)
    if function.nin == 1:
        for method in (function.reduce, function.accumulate, lambda a: function.reduceat(a, [0])):
            with pytest.raises(ValueError, match="only supported for binary functions"):
                method(x)
        with pytest.raises(ValueError, match="only supported for binary functions"):
            function.outer(x, x)
    else:
        with pytest.raises(ValueError, match="not reorderable"):
            function.reduce(np.ones((3, 3)), axis=(0, 1))


@PROFILE
@given(ufuncs, dtypes, shapes(least=2), st.sampled_from("KCFA"), st.data())
def test_order(function, dtype, shape, order, data):
    inputs, wanted = operands(function, dtype, shape, data)
    found = function(*(p.array for p in inputs), order=order)
    for y, want in zip(found if function.nout == 2 else (found,), wanted, strict=True):
        same_bits(y, want)
        assert order != "F" or y.flags.f_contiguous
        assert order != "C" or y.flags.c_contiguous


def test_every_dtype_has_its_loop():
    for function in UFUNCS:
        for dtype in DTYPES:
            results = function(*[np.ones(2, dtype)] * function.nin)
            for y in results if function.nout == 2 else (results,):
                assert y.dtype == dtype
