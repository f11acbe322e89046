"""Calls of every function on arrays of many kinds, each with its answer: what the load tests run, by the thousand."""

import random

import numpy as np

import gelu_fast as gf

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = np.float32

SIZES = (0, 1, 33, 1000, 5000, 150_000)  # the last: on several threads
FORMS = ("none", "tanh", "quick")


def answers(results):
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def make_calls(seed=0):
    """[(call, answers)]: answers computed here, on one thread, from contiguous copies. No nan: bits are compared."""
    rng, calls = np.random.default_rng(seed), []
    ff = gf.FeedForward(*(rng.standard_normal(s).astype("f4") for s in ((8, 16), (16,), (16, 4), (4,))))
    for n in SIZES:
        for dtype in (np.float16, bfloat16, np.float32, np.float64):
            room = (rng.standard_normal(3 * n) * 3).astype(dtype)
            x, dy = room[:n], room[n : 2 * n]
            ones, bias = np.ones(10, dtype), np.arange(10).astype(dtype)
            grid = room[: 2 * n // 10 * 10].reshape(-1, 10)
            for form in FORMS:
                calls += [
                    lambda x=x, form=form: gf.gelu(x, form),
                    lambda x=room[::-3], form=form: gf.gelu(x, form),
                    lambda x=grid[:, 1:7], form=form: gf.gelu_grad(x, form),
                    lambda x=grid.T, form=form: gf.gelu_grad2(x, form),
                    lambda dy=dy, x=x, form=form: gf.gelu_backward(dy, x, form),
                    lambda dy=grid[:, 2], x=grid[:, 3], form=form: gf.gelu_backward(dy, x, form),
                    lambda x=x, form=form: gf.gelu_with_grad(x, form),
                    lambda x=grid, b=bias, form=form: gf.bias_gelu(x, b, form),
                    lambda dy=grid, x=grid[::-1], b=ones, form=form: gf.bias_gelu_backward(dy, x, b, form),
                    lambda x=grid, form=form: gf.geglu(x, form),
                    lambda dy=grid[:, :5], x=grid, form=form: gf.geglu_backward(dy, x, form, gate="first"),
                    lambda x=x, form=form: gf.gelu(x, form, out=np.empty_like(x)),
                    lambda x=x, form=form: in_place(x, form),
                ]  # fmt: skip
    calls.append(lambda: ff(np.ones((1, 8), "f4")))
    calls.append(lambda: refused())
    before = gf.get_num_threads()
    gf.set_num_threads(1)
    done = [(call, answers(call())) for call in calls]
    gf.set_num_threads(before)
    return done


def in_place(x, form):
    y = x.copy()
    return gf.gelu(y, form, out=y)


def refused():
    for call in (lambda: gf.gelu(1j), lambda: gf.gelu(np.ones(3), out=np.ones(4)), lambda: gf.gelu(1.0, "erf")):
        try:
            call()
        except (TypeError, ValueError):
            continue
        raise AssertionError("not refused")
    return np.zeros(0)


def pick(calls, seed):
    """For ever, in an order of its own; large arrays less often."""
    order = random.Random(seed)
    while True:
        call, want = order.choice(calls)
        if sum(w.size for w in want) < 50_000 or order.random() < 0.2:
            yield call, want
