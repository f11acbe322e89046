from typing import Any, SupportsIndex

import numpy as np

bfloat16: np.dtype[Any] | None

def available_isas() -> list[str]: ...
def selected_isa() -> str: ...
def _select_isa(name: str | None) -> None: ...
def get_num_threads() -> int: ...
def set_num_threads(n: SupportsIndex) -> None: ...
def usable_threads() -> int: ...
def cpu_count() -> int: ...
def has_openmp() -> bool: ...

BYTES_PER_THREAD: int
KERNELS_SHA256: str

SUM: int
SUM_BACKWARD: int
GATE: int
GATE_BACKWARD: int
UNARY: int
PRODUCT: int

def run_rows(
    kind: int,
    function: int,
    inputs: tuple[np.ndarray[Any, Any], ...],
    outputs: tuple[np.ndarray[Any, Any], ...],
    sums: np.ndarray[Any, Any] | None = None,
) -> None: ...

gelu: np.ufunc
gelu_grad: np.ufunc
gelu_grad2: np.ufunc
gelu_backward: np.ufunc
gelu_with_grad: np.ufunc
gelu_tanh: np.ufunc
gelu_tanh_grad: np.ufunc
gelu_tanh_grad2: np.ufunc
gelu_tanh_backward: np.ufunc
gelu_tanh_with_grad: np.ufunc
gelu_quick: np.ufunc
gelu_quick_grad: np.ufunc
gelu_quick_grad2: np.ufunc
gelu_quick_backward: np.ufunc
gelu_quick_with_grad: np.ufunc
