"""Where it ran: CPU, caches, instruction sets, versions, load."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gelu_fast as gf

from .contenders import Peer
from .isa import LIMITS

PACKAGES = (
    "gelu-fast", "numpy", "scipy", "torch", "onnxruntime", "jax", "jaxlib", "numba", "ml_dtypes", "scikit-learn",
)  # fmt: skip
_SETTINGS = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", *LIMITS["avx2"])


def describe(peers: Sequence[Peer]) -> dict[str, Any]:
    """The machine, the settings and the versions.

    Parameters
    ----------
    peers : sequence of Peer
        Installed ones; torch is asked for its instruction set if it is among them.

    Returns
    -------
    dict
        Ready for JSON.
    """
    cpu = gf.cpu_info()
    found: dict[str, Any] = {
        "cpu": _model(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": cpu["cpus"],
        "caches": _caches(),
        "isa": cpu["isa"],
        "isa_available": list(cpu["available"]),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "settings": {name: os.environ[name] for name in _SETTINGS if name in os.environ},
        "load": load_average(),
    }
    if any(peer.name == "torch" for peer in peers):
        from .peers_torch import capability

        found["torch_isa"] = capability()
    return found


def load_average() -> float | None:
    """Runnable processes over the last minute; what others did to the figures."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def others_seconds() -> float | None:
    """CPU seconds since boot of everything but this process and its children; None where the system does not say.

    One busy neighbour on two CPUs, and a call on two OpenMP threads took 8 ms for what takes 0.03: each thread spins
    while the other waits for a CPU. So a report says how busy the others were.
    """
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, *rest = (int(field) for field in fields[:8])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _caches() -> dict[str, str]:
    """By level, as Linux reports them for one CPU: {"L1d": "48K", "L2": "2048K", …}."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            found[f"L{level}{'d' if kind == 'Data' else ''}"] = size
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
