"""Stratified samples of inputs: every exponent, the range in use, the tail, segment boundaries, roots."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gelu_fast import coefficients

from .functions import Function

Array = npt.NDArray[Any]

# Beyond it, results have underflowed in every order; a little is left over, to see that they have.
REACH = {
    "float32": {"none": 15.0, "tanh": 11.5, "quick": 66.0},
    "float64": {"none": 39.2, "tanh": 22.2, "quick": 446.0},
}
SPECIAL = (0.0, np.inf, np.nan)


def sample(function: Function, dtype: str, count: int, seed: int = 0) -> Array:
    """About `count` numbers of both signs for one function.

    Parameters
    ----------
    function : Function
    dtype : {"float32", "float64"}
    count : int
        At least 2^16. Three eighths by bits between 2^-14 and the end of the tail, a quarter uniform to there, an
        eighth uniform on [0, 3], an eighth by bits over the whole format, an eighth around the root (uniform and
        ever closer), or uniform where there is none; then the segment boundaries' neighbours and the specials.
    seed : int

    Returns
    -------
    ndarray
        One-dimensional, in no order.
    """
    rng = np.random.default_rng([seed, function.order, *function.form.encode()])
    real = np.dtype(dtype).type
    bits = np.dtype(f"u{real().itemsize}").type
    reach, half = REACH[dtype][function.form], count // 2

    def by_bits(low: float, high: float, n: int) -> Array:
        ends = [int(real(v).view(bits)) for v in (low, high)]
        return np.asarray(rng.integers(ends[0], ends[1], n, dtype=bits, endpoint=True).view(real))

    parts = [
        by_bits(2.0**-14, reach, half * 3 // 8), rng.uniform(0, reach, half // 4), rng.uniform(0, 3, half // 8),
        by_bits(0, float(np.finfo(real).max), half // 8), around_root(function, rng, half // 8),
        boundaries(function, dtype), np.array(SPECIAL),
    ]  # fmt: skip
    t = np.concatenate([p.astype(real) for p in parts])
    return np.concatenate([t, -t])


def around_root(function: Function, rng: np.random.Generator, count: int) -> Array:
    """Half uniform within 2^-5 of the root, half at log-uniform distances; the root's own neighbours."""
    if function.root is None:
        return rng.uniform(0, 3, count)
    r, half = -function.root, count // 2
    sign = rng.choice([-1.0, 1.0], half)
    near = np.array([r, np.nextafter(r, 0), np.nextafter(r, 9)])
    closer = r * (1 + sign * 2 ** rng.uniform(-53, -5, half))
    return np.concatenate([r + rng.uniform(-(2.0**-5), 2.0**-5, half), closer, near])


def boundaries(function: Function, dtype: str) -> Array:
    """The 64 numbers nearest to every boundary of the kernel's segments, which are where its error jumps."""
    tables: dict[Any, Any] = coefficients.F32_TABLES if dtype == "float32" else coefficients.F64_TABLES
    real = np.dtype(dtype).type
    bits = np.dtype(f"u{real().itemsize}").type
    edges = [b for _, b in tables[function.form, function.order]["intervals"]]
    centres = np.array(edges, real).view(bits)
    return np.asarray((centres[:, None] + np.arange(-32, 32).astype(bits)).ravel().view(real))
