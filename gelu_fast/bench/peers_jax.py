"""JAX: compiled ahead of the timing, the result donated back so that it is written into the same buffer."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from .contenders import Array, Contender, NotOfferedError, Peer, load, pinned
from .work import Work


class Jax(Peer):
    """jax.nn.gelu under jit, and its vector-Jacobian product.

    XLA takes one thread per CPU and has no setting for it in a running process (xla_cpu_multi_thread_eigen as a
    compiler option changed nothing), so each turn pins the process to as many CPUs as threads are asked for.
    """

    name = "JAX jit"
    packages = ("jax",)

    def bind(self, work: Work, x: Array, dy: Array | None, threads: int) -> list[Contender]:
        """As `Peer.bind`."""
        cpus = os.cpu_count() or 1
        if hasattr(os, "sched_setaffinity"):
            cpus = len(os.sched_getaffinity(0))
        elif threads < cpus:
            raise NotOfferedError(f"JAX can't be kept to {threads} threads on this system")
        jax = load("jax")
        with jax.enable_x64(work.dtype == "float64"):
            state = _State(jax, work, x, dy)
        scope = partial(pinned, threads) if threads < cpus else None
        contender = Contender(self.name, state.call, state.result)
        return [contender if scope is None else Contender(self.name, state.call, state.result, scope)]


class _State:
    """Holds the buffer that goes round."""

    def __init__(self, jax: Any, work: Work, x: Array, dy: Array | None) -> None:
        def forward(x: Any) -> Any:
            if work.form == "quick":
                return x * jax.nn.sigmoid(1.702 * x)
            return jax.nn.gelu(x, approximate=work.form == "tanh")

        def into(x: Any, out: Any) -> Any:
            return forward(x)

        def backward(dy: Any, x: Any, out: Any) -> Any:
            return jax.vjp(forward, x)[1](dy)[0]

        cpu = jax.devices("cpu")[0]
        arrays = [jax.device_put(a, cpu) for a in ((x,) if dy is None else (dy, x))]
        self._out = jax.device_put(np.zeros_like(x), cpu)
        # The donated argument is read by nobody; XLA then gives its memory to the result.
        function = jax.jit(into if dy is None else backward, donate_argnums=len(arrays), keep_unused=True)
        self._run = partial(function.lower(*arrays, self._out).compile(), *arrays)

    def call(self) -> None:
        self._out = self._run(self._out)
        self._out.block_until_ready()

    def result(self) -> Array:
        # A copy: a view would keep the buffer from being donated.
        return np.array(self._out)
