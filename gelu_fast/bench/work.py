"""What is measured: the works, the columns (size and threads), and the targets each has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..cpu.ufuncs import bfloat16

FORM_NAMES = {"none": "exact", "tanh": "tanh", "quick": "quick"}


@dataclass(frozen=True)
class Work:
    """A function on a dtype.

    Parameters
    ----------
    form : {"none", "tanh", "quick"}
    dtype : {"float32", "float64", "float16", "bfloat16"}
    backward : bool
        dy·gelu′(x) instead of gelu(x).
    """

    form: str
    dtype: str = "float32"
    backward: bool = False

    @property
    def name(self) -> str:
        """As the tables print it."""
        name = f"{FORM_NAMES[self.form]} {'backward' if self.backward else 'forward'}"
        return name if self.dtype == "float32" else f"{name}, {self.dtype}"

    @property
    def numpy_dtype(self) -> npt.DTypeLike:
        """The NumPy dtype; ValueError where bfloat16 has none, ml_dtypes not being installed."""
        if self.dtype != "bfloat16":
            return np.dtype(self.dtype)
        if bfloat16 is None:
            raise ValueError("bfloat16 needs ml_dtypes, which is not installed")
        return bfloat16

    def bytes_moved(self, size: int) -> int:
        """Bytes that one call has to read and write; a cache line read only to be overwritten does not count."""
        return size * np.dtype(self.numpy_dtype).itemsize * (3 if self.backward else 2)


@dataclass(frozen=True)
class Column:
    """Elements per call, and threads on every side."""

    size: int
    threads: int

    @property
    def name(self) -> str:
        """As the tables print it."""
        return f"{self.size:,}, {self.threads} thread{'s' if self.threads > 1 else ''}"


EXACT, TANH, QUICK = Work("none"), Work("tanh"), Work("quick")
EXACT_BACKWARD, TANH_BACKWARD = Work("none", backward=True), Work("tanh", backward=True)
FLOAT64, BFLOAT16, FLOAT16 = Work("none", "float64"), Work("none", "bfloat16"), Work("none", "float16")
WORKS = (EXACT, TANH, QUICK, EXACT_BACKWARD, TANH_BACKWARD, FLOAT64, BFLOAT16, FLOAT16)

SMALL, MIDDLE, LARGE = Column(4096, 1), Column(262_144, 1), Column(1 << 24, 2)
COLUMNS = (SMALL, MIDDLE, LARGE)

# Least ratio to the best peer of the same run on N(0,1) data, by column; set for an AVX2 machine.
TARGETS: dict[Work, tuple[float, float, float]] = {
    EXACT: (2.5, 2.0, 1.2),
    TANH: (2.0, 1.3, 1.0),
    QUICK: (2.0, 1.3, 1.0),
    EXACT_BACKWARD: (4.0, 1.8, 1.2),
    TANH_BACKWARD: (4.0, 5.0, 2.5),
    FLOAT64: (1.5, 2.0, 2.0),
    BFLOAT16: (3.0, 2.5, 1.5),
    FLOAT16: (3.0, 2.5, 1.5),
}
# Least share of the speed of a copy on as many threads, in the last column.
COPY_TARGETS: dict[Work, float] = {EXACT: 0.9, TANH: 0.9}
# Least ratio to the best peer of the exact form in the middle column, by data.
DATA_TARGETS = {"N(0,2)": 1.2}
DATA_FLOOR = 1.0
# Most that the front door may cost over the bare ufunc.
FRONT_DOOR_NS = 500.0
