"""Many Python threads at once on all that is shared in the process: settings, the pool, arrays. Most telling under
`make test-freethreaded`, where no GIL takes turns for them.
"""

import sys
import sysconfig
import threading
import time

import numpy as np
import pytest
from functions import DTYPES, FORMS, same_bits, sample

import gelu_fast as gf
from gelu_fast.cpu import ufuncs as cpu

SECONDS = 1.5


def together(*functions):
    """Runs each in a thread of its own, all beginning at once; the first error is raised."""
    begin, errors = threading.Barrier(len(functions)), []

    def start(function):
        begin.wait()
        try:
            function()
        except BaseException as error:
            errors.append(error)

    pool = [threading.Thread(target=start, args=(f,)) for f in functions]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    if errors:
        raise errors[0]


def until(deadline, function):
    def loop():
        while time.monotonic() < deadline:
            function()

    return loop


@pytest.mark.parametrize("size", [1000, 1 << 18])
def test_values_while_settings_change(size, threads):
    """The thread count and, between two that give the same bits, the pool's callers change at any moment."""
    threads(2)
    cases = []
    for dtype in DTYPES:
        for form in FORMS:
            x = sample(size, dtype)
            cases.append((x, form, gf.gelu(x, form), gf.gelu_backward(x, x, form)))
    deadline = time.monotonic() + SECONDS

    def compute():
        for x, form, value, product in cases:
            same_bits(gf.gelu(x, form), value)
            same_bits(gf.gelu_backward(x, x, form), product)

    def settings():
        for n in (1, 2, 5):
            gf.set_num_threads(n)
            assert gf.get_num_threads() in (1, 2, 5)
            assert gf.cpu_info()["isa"] in gf.cpu_info()["available"]

    together(*[until(deadline, compute)] * 4, *[until(deadline, settings)] * 2)


def test_the_instruction_set_changes_between_calls_only():
    """A call takes one table and keeps to it: each result is that of one of the instruction sets, whole."""
    x = sample(1 << 16)
    expected, chosen = {}, gf.cpu_info()["isa"]
    try:
        for name in cpu.available_isas():
            cpu._select_isa(name)
            expected[name] = gf.gelu(x, "tanh").tobytes()
        deadline = time.monotonic() + SECONDS

        def compute():
            assert gf.gelu(x, "tanh").tobytes() in expected.values()

        def change():
            for name in expected:
                cpu._select_isa(name)

        with gf.num_threads(1):
            together(*[until(deadline, compute)] * 3, until(deadline, change))
    finally:
        cpu._select_isa(chosen)


def test_reshaping_an_array_that_another_thread_computes_with():
    """`run_rows` keeps shape and strides of its own: `x.shape = ...` frees those of the array meanwhile."""
    x, bias = np.ones((64, 4096), np.float32), np.zeros(4096, np.float32)
    expected = gf.bias_gelu(x, bias)
    deadline = time.monotonic() + SECONDS

    def compute():
        rows = x.view()  # another thread has the same object, and reshapes it
        shared.append(rows)
        try:
            same_bits(gf.bias_gelu(rows, bias).reshape(64, 4096), expected)
        except ValueError as error:  # reshaped between two checks: an error, but no crash and no wrong value
            refused.append(error)

    def reshape():
        while shared:
            rows = shared.pop()
            rows.shape = (2, 32, 4096)
            rows.shape = (8, 8, 4096)

    shared, refused = [], []
    together(until(deadline, compute), until(deadline, reshape), until(deadline, compute))


def test_first_calls_race():
    """Lazy parts of the package and the pool's helpers start once, whoever comes first."""
    x = sample(1 << 20)
    results = []
    together(*[lambda: results.append(gf.gelu(x))] * 8)
    for result in results:
        same_bits(result, results[0])


def test_the_gil_is_off():
    if not hasattr(sys, "_is_gil_enabled") or not sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("needs a free-threaded CPython: make test-freethreaded builds one")
    assert not sys._is_gil_enabled()
