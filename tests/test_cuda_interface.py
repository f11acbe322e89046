"""What gelu_fast.cuda understands of an array's description, and what it refuses: no GPU, no Numba."""

import subprocess
import sys

import numpy as np
import pytest

import gelu_fast as gf
from gelu_fast.cuda import interface, layout


class Stub:
    def __init__(self, **fields):
        described = {"version": 3, "shape": (6,), "typestr": "<f4", "data": (4096, False), "strides": None}
        self.__cuda_array_interface__ = described | fields


def test_contiguous():
    v = interface.view("x", Stub(shape=(2, 3), stream=7))
    assert v == interface.View(4096, (2, 3), (12, 4), "float32", False, 7)
    assert v.size == 6
    assert v.extent() == (4096, 4096 + 24)


def test_strides_offset_and_read_only():
    v = interface.view("x", Stub(shape=(2, 3), strides=(40, -8), data=(4096 + 16, True)))
    assert v.readonly
    assert v.strides == (40, -8)
    assert v.extent() == (4096 + 16 - 16, 4096 + 16 + 40 + 4)


@pytest.mark.parametrize(("typestr", "dtype"), [
    ("<f4", "float32"), ("<f8", "float64"), ("<f2", "float16"), ("<V2", "bfloat16"), ("<u2", "bfloat16"),
])  # fmt: skip
def test_dtypes(typestr, dtype):
    assert interface.view("x", Stub(typestr=typestr)).dtype == dtype


def test_bfloat16_type_string_is_that_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert interface.DTYPES[np.dtype(ml_dtypes.bfloat16).str] == "bfloat16"


def test_old_version_without_strides_or_stream():
    stub = Stub(version=2)
    del stub.__cuda_array_interface__["strides"]
    v = interface.view("x", stub)
    assert v.strides == (4,)
    assert v.stream is None


@pytest.mark.parametrize(("fields", "error", "message"), [
    ({"typestr": "<i4"}, TypeError, "x: expected float16, .*got '<i4'"),
    ({"typestr": ">f4"}, TypeError, "'>f4' in the other byte order"),
    ({"mask": Stub()}, TypeError, "masked"),
    ({"stream": 0}, ValueError, "stream 0"),
    ({"version": 4}, ValueError, "version 3 or below, got 4"),
    ({"data": (0, False)}, ValueError, "null pointer"),
    ({"data": (4098, False)}, ValueError, "not aligned to 4 bytes"),
    ({"strides": (6,)}, ValueError, "not aligned to 4 bytes"),
    ({"strides": (4, 4)}, ValueError, "don't go together"),
    ({"data": 4096}, ValueError, "lacks a field or has it malformed"),
])  # fmt: skip
def test_refused(fields, error, message):
    with pytest.raises(error, match=message):
        interface.view("x", Stub(**fields))


def test_empty_may_have_a_null_pointer():
    assert interface.view("x", Stub(shape=(0, 3), data=(0, False))).size == 0


@pytest.mark.parametrize("other", [np.float32(1), np.ones(3), 1.0, [1.0], None])
def test_not_on_a_device(other):
    assert not interface.is_device_array(other)
    with pytest.raises(TypeError, match="x: expected an array on a CUDA device"):
        interface.view("x", other)


def test_torch_on_the_cpu_is_not_on_a_device():
    torch = pytest.importorskip("torch")
    x = torch.ones(3)
    assert not interface.is_device_array(x)
    with pytest.raises(TypeError, match="got a tensor on cpu"):
        gf.cuda.gelu(x)


def plan(shape, *strides, addresses=None, itemsize=4):
    return layout.plan(shape, list(strides), addresses or [0] * len(strides), itemsize)


def test_plan_flat():
    p = plan((3, 5), (20, 4), (20, 4))
    assert (p.rows, p.columns, p.head, p.vectors) == (1, 15, 0, 3)


@pytest.mark.parametrize(("addresses", "head", "vectors"), [([8, 24], 2, 4), ([8, 12], 0, 0), ([4, 4], 3, 4)])
def test_plan_head_needs_equal_alignment(addresses, head, vectors):
    p = plan((19,), (4,), (4,), addresses=addresses)
    assert (p.head, p.vectors) == (head, vectors)


def test_plan_bias_row_is_repeated():
    p = plan((7, 8), (32, 4), (0, 4), (32, 4))
    assert (p.rows, p.columns, p.strides, p.vectors) == (7, 8, ((32, 4), (0, 4), (32, 4)), 2)


def test_plan_rows_off_16_bytes_go_one_by_one():
    assert plan((7, 5), (24, 4), (20, 4)).vectors == 0


def test_plan_transposed_is_dense_when_all_are():
    p = plan((4, 6), (4, 16), (4, 16))
    assert (p.rows, p.columns, p.vectors) == (1, 24, 6)
    p = plan((4, 6), (4, 16), (24, 4))
    assert (p.rows, p.columns, p.strides, p.vectors) == (4, 6, ((4, 16), (24, 4)), 0)


def test_three_loops_are_refused():
    with pytest.raises(ValueError, match="needs 3 nested loops"):
        plan((2, 3, 4), (4, 1000, 90000))


def test_plan_scalar():
    p = plan((), (), ())
    assert (p.rows, p.columns, p.vectors) == (1, 1, 0)


def test_backends_by_name():
    with pytest.raises(TypeError, match=r"x: expected an array on a CUDA device .*got ndarray"):
        gf.gelu(np.ones(3), backend="cuda")
    for backend in ("cython", "numba"):
        with pytest.raises(TypeError, match=f"backend='{backend}' takes NumPy arrays, got one on a CUDA device"):
            gf.gelu(Stub(), backend=backend)


NO_GPU = """
import sys
{before}
import gelu_fast as gf
import gelu_fast.cuda
assert "numba" not in sys.modules
class Stub:
    __cuda_array_interface__ = dict(version=3, shape=(6,), typestr="<f4", data=(4096, False))
for call in (lambda: gf.gelu(Stub()), lambda: gf.cuda.geglu(Stub()), lambda: gf.bias_gelu(Stub(), Stub())):
    try:
        call()
    except {error} as error:
        assert "pip install 'gelu-fast[cuda]'" in str(error), error
        assert {text!r} in str(error), error
    else:
        raise AssertionError("no error")
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_without_numba_cuda():
    before = "sys.modules['numba_cuda'] = None"
    run(NO_GPU.format(before=before, error="ImportError", text="needs numba-cuda"))


def test_without_a_gpu():
    pytest.importorskip("numba_cuda", reason="needs numba-cuda: pip install 'gelu-fast[cuda]'")
    before = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''"
    run(NO_GPU.format(before=before, error="RuntimeError", text="finds no GPU or no driver"))
