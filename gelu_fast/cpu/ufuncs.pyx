"""Real np.ufunc objects over dispatch.c, and the settings that go with it (ISA, threads)."""

import os

cimport numpy as cnp
from libc.stdint cimport intptr_t

cnp.import_array()
cnp.import_ufunc()

cdef extern from "dispatch.h":
    enum: GF_F16, GF_BF16, GF_F32, GF_F64, GF_DTYPES, GF_FUNCTIONS
    ctypedef struct gf_loop:
        pass
    gf_loop gf_loops[9][4]
    void gf_unary_loop(char **, const intptr_t *, const intptr_t *, void *) noexcept nogil
    void gf_product_loop(char **, const intptr_t *, const intptr_t *, void *) noexcept nogil
    const char *const *gf_available()
    int gf_select(const char *name)
    const char *gf_selected()
    int gf_get_threads()
    void gf_set_threads(int n)
    int gf_usable_threads()
    int gf_cpu_count()
    void gf_init()


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
        the smaller of this and OpenMP's own limit (``OMP_NUM_THREADS``, threadpoolctl), and one thread for small arrays,
        inside another OpenMP region, or in a forked child.
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
    import operator
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


# -- ufuncs ----------------------------------------------------------------------------------------------------------

# Per function: float16, float32, float64 in NumPy's order of search. bfloat16 is a user dtype, registered by bfloat16().
cdef cnp.PyUFuncGenericFunction unary_loops[3]
cdef cnp.PyUFuncGenericFunction product_loops[3]
cdef char unary_types[6]
cdef char product_types[9]
cdef void *unary_data[9][3]
cdef void *product_data[3][3]
cdef int[3] dtype_order = [GF_F16, GF_F32, GF_F64]
cdef int[3] type_numbers = [cnp.NPY_FLOAT16, cnp.NPY_FLOAT32, cnp.NPY_FLOAT64]
# NumPy keeps pointers to names and docs for ever.
_kept = []


cdef object make_unary(str name, str doc, int function):
    _kept.append((name.encode(), doc.encode()))
    for i in range(3):
        unary_data[function][i] = &gf_loops[function][dtype_order[i]]
    return cnp.PyUFunc_FromFuncAndData(
        unary_loops, unary_data[function], unary_types, 3, 1, 1, cnp.PyUFunc_None, <bytes> _kept[-1][0],
        <bytes> _kept[-1][1], 0)


cdef object make_product(str name, str doc, int form):
    _kept.append((name.encode(), doc.encode()))
    for i in range(3):
        product_data[form][i] = &gf_loops[form * 3 + 1][dtype_order[i]]
    return cnp.PyUFunc_FromFuncAndData(
        product_loops, product_data[form], product_types, 3, 2, 1, cnp.PyUFunc_None, <bytes> _kept[-1][0],
        <bytes> _kept[-1][1], 0)


cdef int k
for k in range(3):
    unary_loops[k] = <cnp.PyUFuncGenericFunction> gf_unary_loop
    product_loops[k] = <cnp.PyUFuncGenericFunction> gf_product_loop
    unary_types[2 * k] = unary_types[2 * k + 1] = <char> type_numbers[k]
    product_types[3 * k] = product_types[3 * k + 1] = product_types[3 * k + 2] = <char> type_numbers[k]

_FORMULAS = ("x*Phi(x)", "x*sigmoid(2u), u = sqrt(2/pi)*(x + 0.044715 x^3)", "x*sigmoid(1.702 x)")
_ORDERS = ("", "First derivative of ", "Second derivative of ")

gelu = make_unary("gelu", _ORDERS[0] + _FORMULAS[0], 0)
gelu_grad = make_unary("gelu_grad", _ORDERS[1] + _FORMULAS[0], 1)
gelu_grad2 = make_unary("gelu_grad2", _ORDERS[2] + _FORMULAS[0], 2)
gelu_tanh = make_unary("gelu_tanh", _ORDERS[0] + _FORMULAS[1], 3)
gelu_tanh_grad = make_unary("gelu_tanh_grad", _ORDERS[1] + _FORMULAS[1], 4)
gelu_tanh_grad2 = make_unary("gelu_tanh_grad2", _ORDERS[2] + _FORMULAS[1], 5)
gelu_quick = make_unary("gelu_quick", _ORDERS[0] + _FORMULAS[2], 6)
gelu_quick_grad = make_unary("gelu_quick_grad", _ORDERS[1] + _FORMULAS[2], 7)
gelu_quick_grad2 = make_unary("gelu_quick_grad2", _ORDERS[2] + _FORMULAS[2], 8)
gelu_backward = make_product("gelu_backward", "dy times the first derivative of " + _FORMULAS[0], 0)
gelu_tanh_backward = make_product("gelu_tanh_backward", "dy times the first derivative of " + _FORMULAS[1], 1)
gelu_quick_backward = make_product("gelu_quick_backward", "dy times the first derivative of " + _FORMULAS[2], 2)
