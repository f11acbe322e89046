"""The roster, and the peers that need no more than Python: NumPy's formula, SciPy, Numba."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from .contenders import Array, Contender, NotOfferedError, Peer, aligned, load
from .peers_jax import Jax
from .peers_onnxruntime import OnnxRuntime
from .peers_torch import Torch, TorchCompile
from .work import Work

_WIDE = ("float32", "float64")
_SCALE = math.sqrt(2 / math.pi)
_CUBIC = 0.044715
_DENSITY = 1 / math.sqrt(2 * math.pi)


class NumPyFormula(Peer):
    """The formula as it is written in NumPy, in place as far as it goes. One thread, whatever is asked."""

    name = "NumPy formula"

    def bind(self, work: Work, x: Array, dy: Array | None, threads: int) -> list[Contender]:
        """As `Peer.bind`."""
        if work.form == "none":
            raise NotOfferedError("NumPy has no erf")
        if work.dtype not in _WIDE or (work.backward and work.form == "quick"):
            raise NotOfferedError(f"no formula for {work.name}")
        out, t = aligned(x.size, x.dtype), aligned(x.size, x.dtype)
        slope = x if dy is None else dy

        def tanh() -> None:
            np.multiply(x, x, out=t)
            np.multiply(t, _SCALE * _CUBIC, out=t)
            np.add(t, _SCALE, out=t)
            np.multiply(t, x, out=t)
            np.tanh(t, out=t)
            np.add(t, 1, out=t)
            np.multiply(t, x, out=t)
            np.multiply(t, 0.5, out=out)

        def tanh_backward() -> None:
            square = np.multiply(x, x, out=out)
            np.multiply(square, _SCALE * _CUBIC, out=t)
            np.add(t, _SCALE, out=t)
            np.multiply(t, x, out=t)
            np.tanh(t, out=t)
            np.multiply(square, 3 * _SCALE * _CUBIC, out=out)
            np.add(out, _SCALE, out=out)
            np.multiply(out, x, out=out)
            # ½(1+τ) + ½x·u′·(1−τ)(1+τ) = ½(1+τ)·(1 + x·u′·(1−τ))
            np.multiply(out, 1 - t, out=out)
            np.add(out, 1, out=out)
            np.add(t, 1, out=t)
            np.multiply(out, t, out=out)
            np.multiply(out, 0.5, out=out)
            np.multiply(out, slope, out=out)

        def quick() -> None:
            np.multiply(x, -1.702, out=t)
            np.exp(t, out=t)
            np.add(t, 1, out=t)
            np.divide(x, t, out=out)

        call = quick if work.form == "quick" else tanh_backward if work.backward else tanh
        return [Contender(self.name, call, lambda: out)]


class SciPy(Peer):
    """x·ndtr(x), and ndtr(x) + x·φ(x). One thread, whatever is asked."""

    name = "SciPy x·ndtr(x)"
    packages = ("scipy",)

    def bind(self, work: Work, x: Array, dy: Array | None, threads: int) -> list[Contender]:
        """As `Peer.bind`."""
        if work.form != "none":
            raise NotOfferedError("SciPy's ndtr is the exact form")
        if work.dtype not in _WIDE:
            raise NotOfferedError(f"SciPy has no {work.dtype}")
        ndtr = load("scipy.special").ndtr
        out, t = aligned(x.size, x.dtype), aligned(x.size, x.dtype)
        slope = x if dy is None else dy

        def forward() -> None:
            ndtr(x, out)
            np.multiply(out, x, out=out)

        def backward() -> None:
            np.multiply(x, x, out=t)
            np.multiply(t, -0.5, out=t)
            np.exp(t, out=t)
            np.multiply(t, _DENSITY, out=t)
            np.multiply(t, x, out=t)
            ndtr(x, out)
            np.add(out, t, out=out)
            np.multiply(out, slope, out=out)

        return [Contender(self.name, backward if work.backward else forward, lambda: out)]


class Numba(Peer):
    """A plain loop with math.erf, math.tanh or math.exp, fastmath; prange where there are several threads."""

    name = "Numba, math.erf"
    packages = ("numba",)

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, bool], dict[tuple[str, bool], Callable[..., None]]] = {}

    def scope(self, threads: int) -> AbstractContextManager[Any]:
        """As `Peer.scope`."""
        return _numba_threads(threads)

    def bind(self, work: Work, x: Array, dy: Array | None, threads: int) -> list[Contender]:
        """As `Peer.bind`."""
        if work.dtype not in _WIDE:
            raise NotOfferedError(f"Numba has no {work.dtype} on a CPU")
        if work.backward and work.form == "quick":
            raise NotOfferedError(f"no formula for {work.name}")
        key = work.dtype, threads > 1
        if key not in self._compiled:
            self._compiled[key] = _numba_loops(work, parallel=threads > 1)
        function = self._compiled[key][work.form, work.backward]
        out = aligned(x.size, x.dtype)
        arrays = (dy, x, out) if work.backward else (x, out)
        return [Contender(self.name, lambda: function(*arrays), lambda: out)]


@contextlib.contextmanager
def _numba_threads(threads: int) -> Iterator[None]:
    numba = load("numba")
    before = numba.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        numba.set_num_threads(before)


def _numba_loops(work: Work, parallel: bool) -> dict[tuple[str, bool], Callable[..., None]]:
    numba = load("numba")
    jit, span = numba.njit(parallel=parallel, fastmath=True), numba.prange
    kind = np.dtype(work.dtype).type
    # A Python float would turn float32 arithmetic into float64.
    one, half, root, density, scale, cubic, slope = (
        kind(v) for v in (1, 0.5, math.sqrt(0.5), _DENSITY, _SCALE, _CUBIC, 1.702)
    )
    triple = kind(3 * _CUBIC)

    @jit  # type: ignore[untyped-decorator]
    def exact(x: Any, out: Any) -> None:
        for i in span(x.size):
            out[i] = half * x[i] * (one + math.erf(x[i] * root))

    @jit  # type: ignore[untyped-decorator]
    def tanh(x: Any, out: Any) -> None:
        for i in span(x.size):
            u = scale * x[i] * (one + cubic * x[i] * x[i])
            out[i] = half * x[i] * (one + math.tanh(u))

    @jit  # type: ignore[untyped-decorator]
    def quick(x: Any, out: Any) -> None:
        for i in span(x.size):
            out[i] = x[i] / (one + math.exp(-slope * x[i]))

    @jit  # type: ignore[untyped-decorator]
    def exact_backward(dy: Any, x: Any, out: Any) -> None:
        for i in span(x.size):
            phi = density * math.exp(-half * x[i] * x[i])
            out[i] = dy[i] * (half * (one + math.erf(x[i] * root)) + x[i] * phi)

    @jit  # type: ignore[untyped-decorator]
    def tanh_backward(dy: Any, x: Any, out: Any) -> None:
        for i in span(x.size):
            square = x[i] * x[i]
            th = math.tanh(scale * x[i] * (one + cubic * square))
            rise = x[i] * scale * (one + triple * square)
            out[i] = dy[i] * half * (one + th) * (one + rise * (one - th))

    return {
        ("none", False): exact,
        ("tanh", False): tanh,
        ("quick", False): quick,
        ("none", True): exact_backward,
        ("tanh", True): tanh_backward,
    }


def roster() -> list[Peer]:
    """All peers, installed or not."""
    return [Torch(), TorchCompile(), OnnxRuntime(), Jax(), SciPy(), NumPyFormula(), Numba()]
