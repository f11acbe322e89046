"""What a device array says of itself: ``__cuda_array_interface__``, torch's own attributes, the simulator's arrays.

No import of Numba, torch or CuPy.
"""

from __future__ import annotations

import sys
from functools import lru_cache, reduce
from math import prod
from operator import or_
from typing import Any, NamedTuple

import numpy as np

# bfloat16 has no type string of its own: ml_dtypes makes it V2, and as bare bits it is u2.
DTYPES = {"<f2": "float16", "<f4": "float32", "<f8": "float64", "<V2": "bfloat16", "|V2": "bfloat16", "<u2": "bfloat16"}
ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
EXPECTED = "float16, bfloat16 (or its bits as uint16), float32 or float64"


class View(NamedTuple):
    """Memory on a device.

    address : of the first element; shape; strides in bytes; dtype : a name of ITEMSIZE.
    stream : None, or a handle: the work that makes the data is in that stream. 1 and 2 are CUDA's two default streams.
    device : its number, where the array says it.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    readonly: bool = False
    stream: int | None = None
    device: int | None = None

    @property
    def size(self) -> int:
        return prod(self.shape)

    def extent(self) -> tuple[int, int]:
        """First byte, and the one after the last."""
        low, high, _ = _spans(self.shape, self.strides)
        return self.address + low, self.address + high + ITEMSIZE[self.dtype]


def is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_cupy(x: Any) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(x, cupy.ndarray)


def is_simulated(x: Any) -> bool:
    """Whether it is an array of numba.cuda's simulator: those lack the attribute."""
    return hasattr(type(x), "__cuda_ndarray__") and ".simulator." in type(x).__module__


def is_device_array(x: Any) -> bool:
    """Whether it is an array on a CUDA device."""
    if isinstance(x, np.ndarray | np.generic | int | float | list | tuple):
        return False
    if is_torch(x):
        return bool(x.is_cuda)
    return is_simulated(x) or hasattr(x, "__cuda_array_interface__")


def view(name: str, x: Any) -> View:
    """The memory of a device array.

    Parameters
    ----------
    name : str
        Of the parameter, for messages.
    x : object
        A torch tensor, or has ``__cuda_array_interface__`` of version 3 or below, or is an array of the simulator.

    Raises
    ------
    TypeError
        If it is no device array, is of another dtype, byte-swapped or masked, or requires a gradient.
    ValueError
        If the description contradicts itself or the protocol, or elements are not aligned to their own size.
    """
    if is_torch(x):
        return _torch_view(name, x)
    if is_simulated(x):
        return parse(name, x.__array_interface__)
    try:
        described = x.__cuda_array_interface__
    except AttributeError:
        raise TypeError(f"{name}: expected an array on a CUDA device (with __cuda_array_interface__), got "
                        f"{type(x).__name__}") from None  # fmt: skip
    number = int(x.device.id) if is_cupy(x) else None
    return parse(name, described, number)


def parse(name: str, described: dict[str, Any], device: int | None = None) -> View:
    """What a ``__cuda_array_interface__`` means.

    Parameters and errors are those of `view`; `described` is the attribute's value.
    """
    try:
        version, typestr, (address, readonly) = described["version"], described["typestr"], described["data"]
        shape = tuple(map(int, described["shape"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: __cuda_array_interface__ lacks a field or has it malformed: {error!r}") from error
    if version > 3:
        raise ValueError(f"{name}: __cuda_array_interface__: expected version 3 or below, got {version}")
    if described.get("mask") is not None:
        raise TypeError(f"{name}: masked arrays are not supported")
    dtype = DTYPES.get(typestr)
    if dtype is None:
        swapped = typestr.startswith(">") and DTYPES.get("<" + typestr[1:])
        hint = " in the other byte order" if swapped else ""
        raise TypeError(f"{name}: expected {EXPECTED}, got {typestr!r}{hint}")
    stream = described.get("stream")
    if stream == 0:
        raise ValueError(f"{name}: __cuda_array_interface__: stream 0 is ambiguous, which the protocol disallows")
    strides = described.get("strides")
    return _checked(name, View(
        int(address or 0), shape, contiguous(shape, ITEMSIZE[dtype]) if strides is None else tuple(map(int, strides)),
        dtype, bool(readonly), None if stream is None else int(stream), device,
    ))  # fmt: skip


def _torch_view(name: str, x: Any) -> View:
    torch = sys.modules["torch"]
    if not x.is_cuda:
        raise TypeError(f"{name}: expected an array on a CUDA device, got a tensor on {x.device}")
    if x.layout != torch.strided or x.is_conj() or x.is_neg():
        raise TypeError(f"{name}: expected a plain strided tensor, got layout {x.layout}")
    if x.requires_grad and torch.is_grad_enabled():
        raise TypeError(f"{name}: the tensor requires grad, which is not recorded here: pass {name}.detach()")
    names = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32", torch.float64: "float64",
             torch.uint16: "bfloat16"}  # fmt: skip
    dtype = names.get(x.dtype)
    if dtype is None:
        raise TypeError(f"{name}: expected {EXPECTED}, got {x.dtype}")
    size = ITEMSIZE[dtype]
    handle = torch.cuda.current_stream(x.device).cuda_stream
    return _checked(name, View(x.data_ptr(), tuple(x.shape), tuple(s * size for s in x.stride()), dtype,
                               stream=handle or 1, device=x.device.index))  # fmt: skip


@lru_cache(maxsize=1024)
def contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides of C order."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


@lru_cache(maxsize=1024)
def _spans(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, int]:
    """How far the elements reach below and above the first, in bytes; and a number with the bits of all strides."""
    steps = [(n, stride) for n, stride in zip(shape, strides, strict=True) if n > 1]
    low, high = (sum((n - 1) * s for n, s in steps if (s > 0) == up) for up in (False, True))
    return low, high, reduce(or_, (s for _, s in steps), 0)


def _checked(name: str, v: View) -> View:
    shape, strides, size = v.shape, v.strides, ITEMSIZE[v.dtype]
    if len(strides) != len(shape) or min(shape, default=0) < 0:
        raise ValueError(f"{name}: shape {shape} and strides {strides} don't go together")
    if 0 in shape:
        return v
    if not v.address:
        raise ValueError(f"{name}: a null pointer for an array of shape {shape}")
    if v.address % size or _spans(shape, strides)[2] % size:
        raise ValueError(f"{name}: {v.dtype} at address {v.address:#x} with strides {strides} is not aligned to "
                         f"{size} bytes, which a GPU can't read; copy it first")  # fmt: skip
    return v
