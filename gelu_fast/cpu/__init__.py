"""The C kernels, in the main interpreter alone: NumPy's C API, to which they are bound, does not serve another.

CPython 3.12 and Cython refuse the extension by themselves, but not everywhere, and NumPy may fail before with an error
that says nothing of interpreters. So this is asked first.
"""

from importlib import import_module


def _in_main_interpreter() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # of CPython 3.13 and later; before
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        return bool(interpreters.get_current() == interpreters.get_main())
    return True


if not _in_main_interpreter():
    raise ImportError(
        "gelu_fast: expected the main interpreter, got a subinterpreter, where NumPy's C API can't be used; "
        "use threads (the kernels release the GIL) or processes"
    )
