"""PyTorch: the eager kernels with ``out=``, and torch.compile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from .contenders import Array, Contender, NotOfferedError, Peer, aligned, load
from .work import Work


def _tensor(array: Array) -> Any:
    """The same memory as a tensor; bfloat16 is not among the dtypes that torch takes from NumPy."""
    torch = load("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@contextlib.contextmanager
def _torch_scope(threads: int) -> Iterator[None]:
    torch = load("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():  # spares torch the bookkeeping of autograd
            yield
    finally:
        torch.set_num_threads(before)


class Torch(Peer):
    """torch.nn.functional.gelu and aten.gelu_backward.grad_input, with ``out=``."""

    name = "torch"
    packages = ("torch",)

    def scope(self, threads: int) -> AbstractContextManager[Any]:
        """As `Peer.scope`."""
        return _torch_scope(threads)

    def bind(self, work: Work, x: Array, dy: Array | None, threads: int) -> list[Contender]:
        """As `Peer.bind`."""
        torch = load("torch")
        result = aligned(x.size, x.dtype)
        tensor, out = _tensor(x), _tensor(result)
        if work.form == "quick":
            if work.backward:
                raise NotOfferedError("torch has no quick form")
            spare = torch.empty_like(tensor)

            def quick() -> None:
                torch.mul(tensor, 1.702, out=spare)
                torch.sigmoid(spare, out=spare)
                torch.mul(tensor, spare, out=out)

            return [Contender("torch, three ops", quick, lambda: result)]
        if work.backward:
            assert dy is not None
            backward = torch.ops.aten.gelu_backward.grad_input
            call = partial(backward, _tensor(dy), tensor, approximate=work.form, grad_input=out)
        else:
            # functional.gelu is the C binding; torch.ops.aten.gelu.out costs a microsecond more.
            call = partial(torch.nn.functional.gelu, tensor, approximate=work.form, out=out)
        return [Contender(self.name, call, lambda: result)]


class TorchCompile(Peer):
    """The same functions through torch.compile, for this size and thread count, copied into a given tensor."""

    name = "torch.compile"
    packages = ("torch",)
    compiles = True

    def scope(self, threads: int) -> AbstractContextManager[Any]:
        """As `Peer.scope`."""
        return _torch_scope(threads)

    def bind(self, work: Work, x: Array, dy: Array | None, threads: int) -> list[Contender]:
        """As `Peer.bind`."""
        if work.form == "quick" and work.backward:
            raise NotOfferedError("torch has no quick form")
        torch = load("torch")
        load("torch._inductor.config").compile_threads = 1  # no pool of compilers beside the timings
        torch._dynamo.reset()  # it stops compiling after eight variants of one function
        result = aligned(x.size, x.dtype)
        tensor, out = _tensor(x), _tensor(result)
        gelu, form = torch.nn.functional.gelu, work.form
        gradient = torch.ops.aten.gelu_backward.default

        def forward(x: Any, out: Any) -> None:
            out.copy_(gelu(x, approximate=form))

        def quick(x: Any, out: Any) -> None:
            out.copy_(x * torch.sigmoid(1.702 * x))

        def backward(dy: Any, x: Any, out: Any) -> None:
            out.copy_(gradient(dy, x, approximate=form))

        function: Callable[..., None] = backward if work.backward else quick if form == "quick" else forward
        compiled = torch.compile(function, dynamic=False)
        if work.backward:
            assert dy is not None
            call = partial(compiled, _tensor(dy), tensor, out)
        else:
            call = partial(compiled, tensor, out)
        return [Contender(self.name, call, lambda: result)]


def capability() -> str:
    """The instruction set of torch's own kernels. Its exact float32 GELU is oneDNN's, which chooses for itself."""
    torch = load("torch")
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "no limit")
    return f"{torch.backends.cpu.get_cpu_capability()}; oneDNN: {limit}"
