"""What a sweep keeps of its errors: the count, a histogram and, by region, the worst point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Where an error was found: the sign of x, a subnormal result, within 2^-6 of a derivative's root.
REGIONS = ("x<0", "x>0", "subnormal", "root")
BINS_PER_ULP, BINS = 16, 16 * 8 + 1  # the last bin takes everything from 8 ULP


@dataclass(frozen=True)
class Worst:
    """The largest error of a region, in ULP, and its input."""

    ulp: float
    x: float
    dy: float | None = None

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"ulp": self.ulp, "x": self.x, "x_hex": self.x.hex()}
        return out if self.dy is None else {**out, "dy": self.dy, "dy_hex": self.dy.hex()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Worst:
        return cls(data["ulp"], float.fromhex(data["x_hex"]), data.get("dy"))


@dataclass
class Tally:
    """Errors of one function on one instruction set."""

    count: int = 0
    worst: dict[str, Worst] = field(default_factory=dict)
    histogram: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))

    @property
    def max(self) -> Worst:
        """The largest error of all regions."""
        return max(self.worst.values(), key=lambda w: w.ulp)

    def add(self, x: Array, error: Array, region: Array, dy: Array | None = None) -> None:
        """Take in errors in ULP (nothing negative, no nan), each with its index in `REGIONS`."""
        self.count += x.size
        bins = np.minimum(error, BINS / BINS_PER_ULP - 1 / 32) * BINS_PER_ULP
        self.histogram += np.bincount(bins.astype(np.int32), minlength=BINS)
        for index, name in enumerate(REGIONS):
            here = region == index
            if not here.any():
                continue
            i = int(np.argmax(np.where(here, error, -1.0)))
            if name not in self.worst or error[i] > self.worst[name].ulp:
                self.worst[name] = Worst(float(error[i]), float(x[i]), None if dy is None else float(dy[i]))

    def add_exact(self, count: int) -> None:
        """Take in errors of 0."""
        self.count += count
        self.histogram[0] += count

    def merge(self, other: Tally) -> None:
        self.count += other.count
        self.histogram = self.histogram + other.histogram
        for name, worst in other.worst.items():
            if name not in self.worst or worst.ulp > self.worst[name].ulp:
                self.worst[name] = worst

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": self.count,
            "max_ulp": self.max.ulp,
            "worst": {name: self.worst[name].to_json() for name in REGIONS if name in self.worst},
            "histogram_bins_per_ulp": BINS_PER_ULP,
            "histogram": np.trim_zeros(self.histogram, "b").tolist(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Tally:
        histogram = np.zeros(BINS, np.int64)
        histogram[: len(data["histogram"])] = data["histogram"]
        return cls(data["inputs"], {k: Worst.from_json(v) for k, v in data["worst"].items()}, histogram)


def regions(x: Array, subnormal: Array, root: float | None, near: float, even: bool) -> Array:
    """The index in `REGIONS` of each x; `root` is the negative one, and has a mirror image where `even`."""
    index: Array = (~(x < 0)).astype(np.uint8)  # nan counts as positive
    index[subnormal] = REGIONS.index("subnormal")
    if root is not None:
        index[np.abs((-np.abs(x) if even else x) - root) < near] = REGIONS.index("root")
    return index
