"""The feed-forward block Linear → GELU → Linear, and its gated kind, on NumPy arrays, with backward."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .api import gelu, gelu_backward
from .checks import as_array, form_number
from .cpu.ufuncs import SUM, run_rows
from .ffn_dask import is_dask
from .ffn_dask import run as run_dask
from .fused import bias_gelu, bias_gelu_backward, geglu, geglu_backward

Array: TypeAlias = npt.NDArray[Any]

# Bytes of hidden activation at a time. More rows at once are better for the matrix products, which pack the weights at
# every call: see benchmarks/feed_forward.py.
_BLOCK_BYTES = 15 << 19
_LEAST_ROWS = 32


class FeedForward:
    """``gelu(x @ w1 + b1) @ w2 + b2``, or gated ``(value * gelu(gate)) @ w2 + b2``. Stateless: calls change nothing.

    Parameters
    ----------
    w1 : array_like, shape (in, hidden), or (in, 2*hidden) if gated
    b1 : array_like, shape (hidden,) or (2*hidden,), or None
    w2 : array_like, shape (hidden, out)
    b2 : array_like, shape (out,), or None
        All float32, or all float64.
    approximate : {"none", "tanh", "quick"}, optional
        As for `gelu`.
    gated : bool, optional
        The first half of ``x @ w1 + b1`` is the value, the second the gate, as in `geglu`.

    Raises
    ------
    TypeError
        If an array is neither float32 nor float64, or their dtypes differ.
    ValueError
        If shapes don't fit or `approximate` is unknown.

    Notes
    -----
    The products are NumPy's, so BLAS does them, on its own threads; the activation is fused with the bias, on ours,
    while BLAS waits. The weights are kept in Fortran order (copied, unless they are: PyTorch's ``weight.T`` is), which
    is faster for a single row and no slower for many.

    The hidden activation is computed in blocks of rows, so a call takes up to 7.5 MiB (11 if gated) beside the result,
    or what 32 rows take if that is more: a ninth of the whole hidden array for 8,192 rows of 2,048 float32. `backward`
    takes some five times as much.

    Examples
    --------
    >>> import numpy as np, gelu_fast as gf
    >>> ff = gf.FeedForward(np.ones((2, 3)), np.zeros(3), np.ones((3, 2)), None)
    >>> ff(np.ones((5, 2))).shape
    (5, 2)
    """

    def __init__(
        self, w1: Any, b1: Any, w2: Any, b2: Any, approximate: str = "none", *, gated: bool = False
    ) -> None:
        self._form = form_number(approximate)
        given = {"w1": w1, "b1": b1, "w2": w2, "b2": b2}
        arrays = {name: _float_array(name, a) for name, a in given.items() if a is not None}
        dtypes = {a.dtype for a in arrays.values()}
        if len(dtypes) != 1:
            each = ", ".join(f"{name} {a.dtype}" for name, a in arrays.items())
            raise TypeError(f"w1, b1, w2, b2: expected one dtype, got {each}")
        for name in ("w1", "w2"):
            if name not in arrays:
                raise TypeError(f"{name}: expected an array, got None")
            if arrays[name].ndim != 2:
                raise ValueError(f"{name}: expected two axes, got shape {arrays[name].shape}")
        width, hidden = arrays["w1"].shape[1], arrays["w2"].shape[0]
        if width != (2 * hidden if gated else hidden):
            times = "2*" if gated else ""
            raise ValueError(f"w1: expected {times}{hidden} columns, as w2 has {hidden} rows, got {width}")
        for name, size in (("b1", width), ("b2", arrays["w2"].shape[1])):
            if name in arrays and arrays[name].shape != (size,):
                raise ValueError(f"{name}: expected shape ({size},), got {arrays[name].shape}")
        self.approximate, self.gated = approximate, gated
        self._dtype = np.dtype(dtypes.pop().type)
        self.w1, self.w2 = np.asfortranarray(arrays["w1"]), np.asfortranarray(arrays["w2"])
        self.b1, self.b2 = arrays.get("b1"), arrays.get("b2")
        self._bias = self._bias_rows()

    @classmethod
    def from_torch(cls, module: Any) -> FeedForward:
        """The block of a PyTorch module.

        Parameters
        ----------
        module : torch.nn.Module
            Two ``nn.Linear`` with a GELU between them (under any names; dropout between them counts as the identity),
            timm's Mlp, Hugging Face's GPT-2 MLP (``Conv1D``), or one of its BERT layers or a pair ``(BertIntermediate,
            BertOutput)``, of which ``intermediate.dense`` and ``output.dense`` are taken; LayerNorm and the residual
            stay outside. A module with its own ``forward`` is run once in eval mode.

        Returns
        -------
        FeedForward
            Shares no memory with the module. 16-bit weights become float32.

        Raises
        ------
        ValueError
            If the module is another, has another activation, or computes more in ``forward`` (a residual, a scale).
        """
        from .ffn_sources import from_torch

        return cls(**from_torch(module))

    @classmethod
    def from_keras(cls, model: Any) -> FeedForward:
        """The block of a Keras model or list of layers.

        Parameters
        ----------
        model : keras.Model or sequence of keras.Layer
            Two ``Dense`` layers, the first with GELU as its activation or followed by ``Activation``; dropout and input
            layers count as the identity.

        Returns
        -------
        FeedForward

        Raises
        ------
        ValueError
            If the layers are others, the activation is another, or the model's graph is no plain sequence.
        """
        from .ffn_sources import from_keras

        return cls(**from_keras(model))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the weights."""
        return self._dtype

    def _bias_rows(self) -> Array | None:
        """b1 as rows without a stride, which stand for any number of them below the front door."""
        return None if self.b1 is None else np.broadcast_to(np.ascontiguousarray(self.b1), (2, len(self.b1)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_bias"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bias = self._bias_rows()

    def __repr__(self) -> str:
        width, hidden, out = len(self.w1), len(self.w2), self.w2.shape[1]
        return f"FeedForward({width} -> {hidden} -> {out}, {self.dtype}, {self.approximate!r}, gated={self.gated})"

    def __call__(self, x: Any, *, out: Any = None) -> Array:
        """Run the block.

        Parameters
        ----------
        x : array_like or dask array, shape (..., in)
            Of the weights' dtype, or one that converts to it safely.
        out : ndarray, shape (..., out), optional
            C-contiguous, of the weights' dtype, apart from `x`. None for a dask array.

        Returns
        -------
        ndarray, shape (..., out)
            A lazy dask array for one, chunked as `x` but for the last axis. The weights go to a cluster once; above
            10 MB distributed warns of them (its setting "distributed.admin.large-graph-warning-threshold").

        Raises
        ------
        TypeError, ValueError
            If `x` or `out` is of another kind or shape.
        """
        if type(x) is not np.ndarray and is_dask(x):
            if out is not None:
                raise TypeError("out: expected None, since x is a dask array, which is computed later")
            self._check("x", x, len(self.w1))
            lazy: Array = run_dask(self, x)
            return lazy
        rows, leading = self._rows("x", x, len(self.w1))
        shape = (*leading, self.w2.shape[1])
        result = np.empty(shape, self.dtype) if out is None else self._checked_out(out, shape, rows)
        flat = result.reshape(len(rows), self.w2.shape[1])
        hidden = np.empty((self._block(len(rows)), self.w1.shape[1]), self.dtype, order="C")
        for begin in range(0, len(rows), max(len(hidden), 1)):
            part = slice(begin, min(begin + len(hidden), len(rows)))
            h = hidden[: part.stop - begin]
            np.matmul(rows[part], self.w1, out=h)
            np.matmul(self._activate(h), self.w2, out=flat[part])
            if self.b2 is not None:
                flat[part] += self.b2
        return result

    def backward(self, dy: Any, x: Any) -> tuple[Array, Array, Array | None, Array, Array | None]:
        """Gradients of a loss, from the one with respect to the block's output. The hidden activation is computed anew.

        Parameters
        ----------
        dy : array_like, shape (..., out)
        x : array_like, shape (..., in)

        Returns
        -------
        dx, dw1, db1, dw2, db2 : ndarray
            Of the shapes of x, w1, b1, w2, b2; None for a bias that is None.

        Raises
        ------
        TypeError, ValueError
            As the call; ValueError if the leading axes differ.
        """
        for name, array in (("dy", dy), ("x", x)):
            if is_dask(array):  # converting it would compute it whole, here
                raise TypeError(f"{name}: expected a NumPy array, got a dask array; pass its blocks one by one")
        rows, leading = self._rows("x", x, len(self.w1))
        slopes, other = self._rows("dy", dy, self.w2.shape[1])
        if other != leading:
            raise ValueError(f"dy: expected leading axes {leading}, as x has, got {other}")
        dx = np.empty((*leading, len(self.w1)), self.dtype)
        flat = dx.reshape(rows.shape)
        dw1, dw2 = np.zeros(self.w1.shape, self.dtype), np.zeros(self.w2.shape, self.dtype)
        db1 = np.zeros(self.w1.shape[1], np.float64)
        step = max(self._block(len(rows)), 1)
        for begin in range(0, len(rows), step):
            part = slice(begin, min(begin + step, len(rows)))
            z = rows[part] @ self.w1
            dh = slopes[part] @ self.w2.T
            h, dz, sums = self._activation_backward(dh, z)
            dw2 += h.T @ slopes[part]
            dw1 += rows[part].T @ dz
            np.matmul(dz, self.w1.T, out=flat[part])
            db1 += sums
        db2 = None if self.b2 is None else slopes.sum(0, dtype=np.float64).astype(self.dtype)
        return dx, dw1, None if self.b1 is None else db1.astype(self.dtype), dw2, db2

    def _activate(self, h: Array) -> Array:
        """The activation of h, in place where the shape is the same."""
        if self.gated:
            if self.b1 is not None:
                h += self.b1
            return np.asarray(geglu(h, self.approximate))
        if self._bias is None:
            return np.asarray(gelu(h, self.approximate, out=h))
        # bias_gelu without its checks, which cost more than the work on a single row.
        run_rows(SUM, self._form, (h, self._bias), (h,))
        return h

    def _activation_backward(self, dh: Array, z: Array) -> tuple[Array, Array, Array]:
        """(activation, gradient of z, its sum over rows); overwrites z."""
        if self.gated:
            if self.b1 is not None:
                z += self.b1
            dz = geglu_backward(dh, z, self.approximate)
            return geglu(z, self.approximate), dz, dz.sum(0, dtype=np.float64)
        if self.b1 is None:
            return gelu(z, self.approximate), gelu_backward(dh, z, self.approximate), np.zeros(z.shape[1], np.float64)
        dz, sums = bias_gelu_backward(dh, z, self.b1, self.approximate)
        return bias_gelu(z, self.b1, self.approximate, out=z), dz, sums

    def _block(self, rows: int) -> int:
        row_bytes = max(1, int(self.w1.shape[1]) * self._dtype.itemsize)
        most = max(_LEAST_ROWS, _BLOCK_BYTES // row_bytes)
        blocks = -(-rows // most)
        return -(-rows // max(blocks, 1))  # all alike

    def _rows(self, name: str, array: Any, width: int) -> tuple[Array, tuple[int, ...]]:
        if type(array) is np.ndarray and array.ndim == 2 and array.dtype is self._dtype and array.shape[1] == width:
            flags = array.flags
            if flags.c_contiguous and flags.aligned:
                return array, array.shape[:1]
        found = as_array(name, array)
        self._check(name, found, width)
        native = np.ascontiguousarray(found, self.dtype)
        size = 1
        for length in found.shape[:-1]:
            size *= length
        return native.reshape(size, width), found.shape[:-1]

    def _check(self, name: str, array: Any, width: int) -> None:
        if not np.can_cast(array.dtype, self.dtype, "safe") or array.dtype.kind not in "fiub":
            raise TypeError(f"{name}: expected {self.dtype} or what converts to it safely, got {array.dtype}")
        if array.ndim == 0 or array.shape[-1] != width:
            raise ValueError(f"{name}: expected a last axis of {width}, got shape {array.shape}")

    def _checked_out(self, out: Any, shape: tuple[int, ...], rows: Array) -> Array:
        if type(out) is not np.ndarray:
            raise TypeError(f"out: expected a NumPy array of {self.dtype} and shape {shape}, got {type(out).__name__}")
        if out.dtype != self.dtype or out.shape != shape:
            raise ValueError(f"out: expected {self.dtype} of shape {shape}, got {out.dtype} of shape {out.shape}")
        if not out.flags.c_contiguous or not out.flags.behaved:
            raise ValueError("out: expected a writeable C-contiguous array")
        if np.may_share_memory(out, rows):
            raise ValueError("out: expected an array apart from x")
        return out


def _float_array(name: str, array: Any) -> Array:
    found = as_array(name, array)
    if found.dtype.newbyteorder("=") not in (np.float32, np.float64):
        raise TypeError(f"{name}: expected float32 or float64, got {found.dtype}")
    return found.astype(found.dtype.newbyteorder("="), order="K", copy=False)
