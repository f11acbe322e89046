"""What the runtimes can read and run, and the form of GELU that follows from it.

Every fact of RUNTIMES was found by loading and running small files; `make deploy-facts` prints them. Common to all of
them (CPU provider), in float64: Erf has no kernel, so no exact GELU but the primitive form loads; the standard tanh
form expands with float32 constants (1.5e-9 off); x·Sigmoid(1.702x) is fused to a QuickGelu without a kernel before
1.32. In float16 all runs in float32 between Casts that the runtime inserts, but Gelu falls apart into its function body
first, unless the Casts are in the file. bfloat16 has no kernel for MatMul, Add, Erf or Tanh.

MEASURED (measured.py, made by benchmarks/forms.py) says which form is quickest where.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass
from typing import Any

from gelu_fast.export import forms
from gelu_fast.export.lazy import require
from gelu_fast.export.measured import MEASURED

DTYPES = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True)
class Runtime:
    """What one release reads and runs.

    Attributes
    ----------
    name : {"onnxruntime", "onnxruntime-web"}
    version : tuple of int
    opset, ir_version : int
        The highest it reads.
    native : bool
        Whether the standard Gelu has a float32 kernel; otherwise it runs as its function body, operator by operator.
    source : str
    """

    name: str
    version: tuple[int, ...]
    opset: int
    ir_version: int
    native: bool
    source: str


_PROBE = "tests/deploy/probe.py, onnxruntime"
# In order. A release between two rows is taken to read no more than the row before it.
RUNTIMES = (
    Runtime("onnxruntime", (1, 17), 20, 9, False, f"{_PROBE} 1.17.3"),
    Runtime("onnxruntime", (1, 20), 21, 10, True, f"{_PROBE} 1.20.1"),
    Runtime("onnxruntime", (1, 32), 28, 14, True, f"{_PROBE} 1.32.0"),
    Runtime("onnxruntime-web", (1, 30), 26, 13, True, f"{_PROBE}-web 1.30"),
)
# Where opset 20 isn't called for: every runtime here reads it.
_COMMON_OPSET = 17
_PATTERN = re.compile(r"(?P<name>onnxruntime(?:-web)?)(?:(?P<how>>=|==)(?P<version>\d+(?:\.\d+)*))?")
# Portable forms first; a later one must be this much quicker.
_PREFERENCE = ("native", "fusable", "primitive")
_WORTH = 1.05


@dataclass(frozen=True)
class Plan:
    """How a model is written.

    Attributes
    ----------
    target : str
        What was asked for, as `resolve` understood it.
    form : str
        One of `forms.FORMS`.
    opset, ir_version : int
    compute : str
        The dtype in which GELU is computed; between two Casts if it isn't the model's.
    runtimes : tuple of Runtime
        Those the target means; none for an explicit opset.
    why : str
        The reason for the form, a clause.
    """

    target: str
    form: str
    opset: int
    ir_version: int
    compute: str
    runtimes: tuple[Runtime, ...]
    why: str


def resolve(target: str | None, form: str, formula: str, dtype: str, rank: int = 2) -> Plan:
    """Choose form, opset and IR version.

    Parameters
    ----------
    target : str, optional
        ``"onnxruntime>=1.17"``, ``"onnxruntime==1.20"``, ``"onnxruntime"`` or None (the one installed),
        ``"onnxruntime-web"``, or ``"opset 17"``.
    form : str
        One of `forms.FORMS`, or ``"auto"``.
    formula : {"none", "tanh", "quick"}
    dtype : {"float32", "float64", "float16", "bfloat16"}
    rank : int
        Of the model's input.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these, or the combination can't work; the message says what would.
    """
    check(target, form)
    name, runtimes, opset = _parse(target)
    chosen, why = (form, "asked for") if form != "auto" else _choose(runtimes, opset, formula, dtype, rank)
    _refuse(name, runtimes, opset, chosen, formula, dtype)
    if opset is None:
        opset = forms.FIRST_OPSET["native"] if chosen == "native" else _COMMON_OPSET
    compute = forms.WIDER[dtype] if chosen == "primitive" else dtype
    if dtype == "float16" and runtimes and chosen != "primitive":
        compute = "float32"  # or Gelu falls apart, and chains aren't fused
    return Plan(name, chosen, opset, _ir_version(opset), compute, runtimes, why)


def check(target: str | None, form: str) -> None:
    """Raise as `resolve` does if one of the two alone is wrong, before any weights are read."""
    if form != "auto" and form not in forms.FORMS:
        raise ValueError(f"form: expected 'auto', {', '.join(map(repr, forms.FORMS))}, got {form!r}")
    if target is not None and not isinstance(target, str):
        raise TypeError(f"target: expected None or text such as 'onnxruntime>=1.17', got {target!r}")
    _parse(target)


def meant(target: str | None) -> tuple[Runtime, ...]:
    """The runtimes that a target means; none for an explicit opset. Raises as `resolve` does."""
    check(target, "auto")
    return _parse(target)[1]


def available(target: str | None, formula: str, dtype: str, rank: int = 2) -> dict[str, Plan]:
    """The forms that `resolve` would not refuse, each with its plan."""
    found = {}
    for form in forms.FORMS:
        try:
            found[form] = resolve(target, form, formula, dtype, rank)
        except ValueError:
            continue
    return found


def _parse(target: str | None) -> tuple[str, tuple[Runtime, ...], int | None]:
    target = None if target is None else re.sub(r"\s*(>=|==)\s*", r"\1", target.strip())
    if target is None or target == "onnxruntime":
        version = _installed()
        return f"onnxruntime=={version}", (_row("onnxruntime", _numbers(version)),), None
    if match := re.fullmatch(r"opset (\d+)", target):
        opset, newest = int(match[1]), int(require("onnx.defs").onnx_opset_version())
        lowest = min(forms.FIRST_OPSET.values())
        if not lowest <= opset <= newest:
            raise ValueError(f"target: expected an opset from {lowest} to {newest}, got {opset}")
        return target, (), opset
    match = _PATTERN.fullmatch(target)
    if match is None:
        raise ValueError(f"target: expected 'onnxruntime>=1.17', 'onnxruntime==1.20', 'onnxruntime-web', 'opset 17' or "
                         f"the like, got {target!r}")  # fmt: skip
    rows = [row for row in RUNTIMES if row.name == match["name"]]
    if match["version"] is None:
        return target, (rows[-1],), None
    numbers = _numbers(match["version"])
    at = _row(match["name"], numbers)
    later = [row for row in rows if row.version > numbers] if match["how"] == ">=" else []
    return target, (at, *later), None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _row(name: str, version: tuple[int, ...]) -> Runtime:
    rows = [row for row in RUNTIMES if row.name == name]
    found = [row for row in rows if row.version <= version]
    if not found:
        oldest = ".".join(map(str, rows[0].version))
        raise ValueError(f"target: expected {name} {oldest} or later, got {'.'.join(map(str, version))}")
    return found[-1]


def _installed() -> str:
    for package in ("onnxruntime", "onnxruntime-gpu"):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ".".join(map(str, RUNTIMES[-2].version))


def _choose(
    runtimes: tuple[Runtime, ...], opset: int | None, formula: str, dtype: str, rank: int
) -> tuple[str, str]:
    if dtype == "float64":
        return "primitive", "Erf has no float64 kernel, and the tanh form expands with float32 constants"
    native = formula != "quick" and (opset is None or opset >= forms.FIRST_OPSET["native"])
    if not runtimes:
        return ("native", f"opset {opset} has Gelu") if native else ("fusable", "there is no such standard operator")
    if native and not all(row.native for row in runtimes):
        return "fusable", "Gelu runs as its function body on the oldest runtime meant, and the chain is fused on all"
    for form in _PREFERENCE:
        if form == "native" and not native:
            continue
        if all(_quick_enough(row, form, formula, dtype, rank, native) for row in runtimes):
            return form, "the quickest of the portable forms there"
    return "fusable", "fused on every runtime meant"


def _quick_enough(row: Runtime, form: str, formula: str, dtype: str, rank: int, native: bool) -> bool:
    """Whether the measured time is next to the best; a runtime without measurements has no say."""
    version = ".".join(map(str, row.version[:2]))
    times: dict[str, float] = MEASURED.get((row.name, version, dtype, formula, min(rank, 3)), {})
    times = {name: t for name, t in times.items() if name in _PREFERENCE and (name == "native") <= native}
    return form in times and times[form] <= _WORTH * min(times.values()) if times else True


def _refuse(
    name: str, runtimes: tuple[Runtime, ...], opset: int | None, form: str, formula: str, dtype: str
) -> None:
    if form == "native" and formula == "quick":
        raise ValueError("form: 'native' has no quick formula, since ONNX has no such operator; 'fusable', 'contrib', "
                         "'function' and 'primitive' do")  # fmt: skip
    if opset is not None and opset < forms.FIRST_OPSET[form]:
        others = ", ".join(repr(f) for f in forms.FORMS if forms.FIRST_OPSET[f] <= opset)
        raise ValueError(f"form: {form!r} needs opset {forms.FIRST_OPSET[form]}, target is {name!r}; {others} would do")
    if dtype == "float64" and form != "primitive" and (runtimes or form == "contrib"):
        raise ValueError(
            f"form: {form!r} isn't to be had in float64: onnxruntime has no float64 kernel for Erf, expands the "
            "standard tanh form with float32 constants, and fuses the quick chain to an operator without a kernel; "
            "'primitive' works"
        )
    needed = opset or (forms.FIRST_OPSET["native"] if form == "native" else _COMMON_OPSET)
    for row in runtimes:
        if needed > row.opset or _ir_version(needed) > row.ir_version:
            raise ValueError(f"target: {name} reads opsets up to {row.opset} and IR versions up to {row.ir_version}; "
                             f"{form!r} needs opset {needed}")  # fmt: skip


def _ir_version(opset: int) -> int:
    helper: Any = require("onnx.helper")
    # 8 for model-local functions, and no runtime here reads less than that.
    return max(8, int(helper.find_min_ir_version_for([helper.make_opsetid("", opset)])))
