# cython: freethreading_compatible=True
# cython: subinterpreters_compatible=no
"""Real np.ufunc objects over dispatch.c, and the settings that go with it (ISA, threads).

Why this is safe without the GIL:

- what is written after import is the chosen ISA and the thread count, single words, read and written atomically;
- tables for NumPy (`loops`, `data`, `types`, `_kept`) and the list of ISAs are filled at import, by one thread;
- the pool serves one caller, who takes it by an atomic exchange; all others compute by themselves;
- loops and `run_rows` compute without the GIL anyhow: one thread's writes to an array that another reads are the
  callers' affair, as in NumPy; so is resizing one. `run_rows` copies shape and strides, since `x.shape = ...` in
  another thread frees them.

Why one interpreter only: NumPy's C API, whose types and dtype numbers these tables hold, lives in the main one.
"""

import operator
import os

import numpy as _np

cimport numpy as cnp
from libc.stdint cimport intptr_t

cnp.import_array()
cnp.import_ufunc()

cdef extern from "dispatch.h":
    enum: GF_F16, GF_BF16, GF_F32, GF_F64
    ctypedef struct gf_loop:
        pass
    gf_loop gf_loops[9][4]
    void gf_unary_loop(char **, const intptr_t *, const intptr_t *, void *) noexcept nogil
    void gf_product_loop(char **, const intptr_t *, const intptr_t *, void *) noexcept nogil
    void gf_with_grad_loop(char **, const intptr_t *, const intptr_t *, void *) noexcept nogil
    const char *const *gf_available()
    int gf_select(const char *name)
    const char *gf_selected()
    int gf_get_threads()
    void gf_set_threads(int n)
    int gf_usable_threads()
    int gf_cpu_count()
    int gf_has_openmp()
    const char *gf_kernels_sha256()
    void gf_init()


cdef extern from "common.h":
    enum: GF_BYTES_PER_THREAD


cdef extern from "rows.h":
    enum: GF_SUM, GF_SUM_BACKWARD, GF_GATE, GF_GATE_BACKWARD, GF_UNARY, GF_PRODUCT
    ctypedef struct gf_rows:
        int kind, dtype, function, inputs, outputs, ndim
        intptr_t n
        const intptr_t *shape
        char *at[5]
        const intptr_t *stride[5]
        intptr_t step[5]
        double *sums
    int gf_rows_run(const gf_rows *rows) nogil


gf_init()


# -- ISA -------------------------------------------------------------------------------------------------------------

def available_isas():
    """The instruction sets this CPU can run, best first."""
    cdef const char *const *names = gf_available()
    found = []
    cdef int i = 0
    while names[i] != NULL:
        found.append(names[i].decode())
        i += 1
    return found


def selected_isa():
    """The one in use."""
    return gf_selected().decode()


def _select_isa(name):
    cdef bytes encoded = b"" if name is None else name.encode()
    cdef const char *chosen = NULL
    if name is not None:
        chosen = encoded
    if gf_select(chosen) != 0:
        raise ImportError(
            f"GELU_FAST_ISA: {name!r} is not available on this machine; available are {', '.join(available_isas())}"
        )


_select_isa(os.environ.get("GELU_FAST_ISA") or None)


# -- threads ---------------------------------------------------------------------------------------------------------

def get_num_threads():
    """The number of threads a large call uses at most.

    Returns
    -------
    int
        As set by `set_num_threads`, at first the number of CPUs this process may run on. What a call really uses is
        the smaller of this and OpenMP's own limit (``OMP_NUM_THREADS``, threadpoolctl), and one thread for small
        arrays, inside another OpenMP region, or in a forked child.
    """
    return gf_get_threads()


def set_num_threads(n):
    """Set the number of threads for the whole process.

    Parameters
    ----------
    n : int
        At least 1.

    Raises
    ------
    TypeError
        If `n` is not an integer.
    ValueError
        If `n` is less than 1.
    """
    try:
        count = operator.index(n)
    except TypeError:
        raise TypeError(f"n: expected an integer, got {type(n).__name__}") from None
    if isinstance(n, bool) or not 1 <= count <= 65536:
        raise ValueError(f"n: expected at least 1 thread (and at most 65536), got {n!r}")
    gf_set_threads(count)


def usable_threads():
    """What a large call made here and now would use."""
    return gf_usable_threads()


def cpu_count():
    """CPUs this process may run on."""
    return gf_cpu_count()


def has_openmp():
    """Whether OpenMP's limits are obeyed; without it, of these OMP_NUM_THREADS alone, as it was at import."""
    return bool(gf_has_openmp())


BYTES_PER_THREAD = GF_BYTES_PER_THREAD
# Of the sources of the arithmetic (setup.py's KERNELS), which stays the same from build to build.
KERNELS_SHA256 = gf_kernels_sha256().decode()


# -- rows ------------------------------------------------------------------------------------------------------------

cdef enum:
    MAX_AXES = 64  # NumPy's own limit

SUM, SUM_BACKWARD, GATE, GATE_BACKWARD = GF_SUM, GF_SUM_BACKWARD, GF_GATE, GF_GATE_BACKWARD
UNARY, PRODUCT = GF_UNARY, GF_PRODUCT


def run_rows(int kind, int function, tuple inputs, tuple outputs, cnp.ndarray sums=None):
    """Compute over arrays of one shape (at least one axis), dtype and native byte order, aligned; nothing is checked.

    Parameters
    ----------
    kind : int
        SUM (x, bias -> y), SUM_BACKWARD (x, bias, dy -> dx, and `sums` over the leading axes), GATE (gate, value -> y),
        GATE_BACKWARD (gate, value, dy -> dgate, dvalue), UNARY (x -> y) or PRODUCT (dy, x -> dx).
    function : int
        The form, 0 to 2; for UNARY and PRODUCT form*3 + order.
    inputs, outputs : tuple of ndarray
        An output may be an input, or apart from all.
    sums : ndarray of float64, optional

    Raises
    ------
    MemoryError
    """
    cdef gf_rows job
    cdef cnp.ndarray array = inputs[0]
    cdef int k = 0, axis, failed, last = array.ndim - 1
    cdef intptr_t[MAX_AXES] shape
    cdef intptr_t[5][MAX_AXES] strides
    job.kind, job.function, job.inputs, job.outputs, job.ndim = kind, function, len(inputs), len(outputs), last
    number = array.descr.type_num
    job.dtype = (GF_F16 if number == cnp.NPY_FLOAT16 else GF_F32 if number == cnp.NPY_FLOAT32 else
                 GF_F64 if number == cnp.NPY_FLOAT64 else GF_BF16)
    for axis in range(last):
        shape[axis] = cnp.PyArray_DIMS(array)[axis]
    job.shape, job.n = shape, cnp.PyArray_DIMS(array)[last]
    for array in inputs + outputs:
        job.at[k] = <char *> cnp.PyArray_DATA(array)
        for axis in range(last):
            strides[k][axis] = cnp.PyArray_STRIDES(array)[axis]
        job.stride[k] = strides[k]
        job.step[k] = cnp.PyArray_STRIDES(array)[last]
        k += 1
    job.sums = NULL if sums is None else <double *> cnp.PyArray_DATA(sums)
    with nogil:
        failed = gf_rows_run(&job)
    if failed:
        raise MemoryError("no memory for the sums over rows")


# -- ufuncs ----------------------------------------------------------------------------------------------------------

# Loops in NumPy's order of search: float16, float32, float64; then bfloat16, a user dtype, if ml_dtypes is installed.
cdef enum:
    MAX_UFUNCS = 15
    BUILTIN = 3
cdef int[BUILTIN] dtypes = [GF_F16, GF_F32, GF_F64]
cdef int[BUILTIN] type_numbers = [cnp.NPY_FLOAT16, cnp.NPY_FLOAT32, cnp.NPY_FLOAT64]
# NumPy keeps pointers to all of this, for ever.
cdef cnp.PyUFuncGenericFunction[MAX_UFUNCS][BUILTIN] loops
cdef void *data[MAX_UFUNCS][BUILTIN]
cdef char[MAX_UFUNCS][BUILTIN * 3] types
_kept = []

try:
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:
    bfloat16 = None
else:
    bfloat16 = _np.dtype(_bfloat16)


cdef object make(str name, str doc, int function, int inputs, int outputs, cnp.PyUFuncGenericFunction loop):
    cdef int row = len(_kept), operands = inputs + outputs, number, i, k
    cdef int[3] bfloat16_types
    cdef bytes encoded_name = name.encode(), encoded_doc = doc.encode()
    if row >= MAX_UFUNCS:
        raise SystemError("MAX_UFUNCS is too small")
    _kept.append((encoded_name, encoded_doc))
    for i in range(BUILTIN):
        loops[row][i] = loop
        data[row][i] = &gf_loops[function][dtypes[i]]
        for k in range(operands):
            types[row][i * operands + k] = <char> type_numbers[i]
    ufunc = cnp.PyUFunc_FromFuncAndData(
        loops[row], data[row], types[row], BUILTIN, inputs, outputs, cnp.PyUFunc_None, encoded_name, encoded_doc, 0)
    if bfloat16 is not None:
        # At creation: NumPy would send a bfloat16 call made before this to the float32 loop, and remember that.
        number = bfloat16.num
        for k in range(operands):
            bfloat16_types[k] = number
        cnp.PyUFunc_RegisterLoopForType(ufunc, number, loop, bfloat16_types, &gf_loops[function][GF_BF16])
    return ufunc


cdef cnp.PyUFuncGenericFunction unary = <cnp.PyUFuncGenericFunction> gf_unary_loop
cdef cnp.PyUFuncGenericFunction product = <cnp.PyUFuncGenericFunction> gf_product_loop
cdef cnp.PyUFuncGenericFunction both = <cnp.PyUFuncGenericFunction> gf_with_grad_loop

_EXACT, _TANH, _QUICK = "x*Phi(x)", "x*sigmoid(2u), u = sqrt(2/pi)*(x + 0.044715 x^3)", "x*sigmoid(1.702 x)"

gelu = make("gelu", _EXACT, 0, 1, 1, unary)
gelu_grad = make("gelu_grad", "First derivative of " + _EXACT, 1, 1, 1, unary)
gelu_grad2 = make("gelu_grad2", "Second derivative of " + _EXACT, 2, 1, 1, unary)
gelu_backward = make("gelu_backward", "dy times the first derivative of " + _EXACT, 1, 2, 1, product)
gelu_with_grad = make("gelu_with_grad", _EXACT + " and its first derivative", 0, 1, 2, both)

gelu_tanh = make("gelu_tanh", _TANH, 3, 1, 1, unary)
gelu_tanh_grad = make("gelu_tanh_grad", "First derivative of " + _TANH, 4, 1, 1, unary)
gelu_tanh_grad2 = make("gelu_tanh_grad2", "Second derivative of " + _TANH, 5, 1, 1, unary)
gelu_tanh_backward = make("gelu_tanh_backward", "dy times the first derivative of " + _TANH, 4, 2, 1, product)
gelu_tanh_with_grad = make("gelu_tanh_with_grad", _TANH + " and its first derivative", 3, 1, 2, both)

gelu_quick = make("gelu_quick", _QUICK, 6, 1, 1, unary)
gelu_quick_grad = make("gelu_quick_grad", "First derivative of " + _QUICK, 7, 1, 1, unary)
gelu_quick_grad2 = make("gelu_quick_grad2", "Second derivative of " + _QUICK, 8, 1, 1, unary)
gelu_quick_backward = make("gelu_quick_backward", "dy times the first derivative of " + _QUICK, 7, 2, 1, product)
gelu_quick_with_grad = make("gelu_quick_with_grad", _QUICK + " and its first derivative", 6, 1, 2, both)
