"""GELU alone: cut out of a model, and fed with what no Linear lets through.

A Linear turns an infinity into nan and hides the tail in a sum, so the activation is run as a model of its own.
A value is right if it is off by no more than rounding may, 2u·|gelu(x)| + 4u'·|x|, with u of the dtype and u' of the
type that it's computed in (float32 for the 16-bit types), and, where gelu(x) is a normal number, by no more than 1/16
of itself. The first lets ½x·(1 + erf) cancel, the second doesn't let it lose the tail: onnxruntime 1.32's exact form
is 57 % off at −5.5 and gives 0 from −6 down, and nan at −inf.

Who is to blame: if the same form of the same formula, freshly made by `gelu_fast.export.forms`, is wrong in the same
way on this runtime, the runtime; otherwise the model. The formulas differ by up to 4.7e-4 near x = −2.2, where
bfloat16 rounds to 1.2e-4: here all dtypes tell them apart, as long as the form rounds once. A chain that rounds every
step to 16 bits doesn't; then the model must give what the fresh chain of its formula gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gelu_fast.export import cut, forms, graph
from gelu_fast.export.blocks import Array
from gelu_fast.export.lazy import require
from gelu_fast.export.reference import finfo, gelu64, unit
from gelu_fast.export.runtime import Program, Runner, prepare, runtime_name
from gelu_fast.forms import FORMS

if TYPE_CHECKING:
    import onnx

LENGTHS = (1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33)
LEVELS = ("disable", "all")
_SPECIAL = (math.inf, -math.inf, math.nan, 0.0, -0.0)
_ORDINARY = (1.0, -1.0, -0.75, 2.2, -2.2, -3.0, -5.5, -6.0, -8.0, -13.24, 65504.0, -65504.0, 3e19, -3e19)
_TAIL = 1 / 16
_RIGHT = ("primitive", "contrib", "fusable", "native")  # in the order in which they are recommended


@dataclass(frozen=True)
class Edge:
    """A value at which an activation is wrong.

    Attributes
    ----------
    activation : str
        The tensor before it.
    x, got, want : float
        `want` is float64's.
    cause : {"model", "runtime"}
        "runtime" if a freshly made node of the same form does the same.
    levels : tuple of str
        The graph optimisation levels at which it is.
    """

    activation: str
    x: float
    got: float
    want: float
    cause: str
    levels: tuple[str, ...]


@dataclass(frozen=True)
class Activations:
    """What the activations of a model do by themselves.

    Attributes
    ----------
    sites : tuple of str
        The tensors before those that were cut out and run.
    edges : tuple of Edge
    failures, remarks : tuple of str
        What is the model's fault; what isn't.
    """

    sites: tuple[str, ...]
    edges: tuple[Edge, ...]
    failures: tuple[str, ...]
    remarks: tuple[str, ...]


def edge_values(dtype: npt.DTypeLike) -> Array:
    """Infinities, nan, zeros, subnormals, the largest, the tail; without those that the dtype rounds to infinity."""
    info = finfo(dtype)
    tiny, normal, most = (float(v) for v in (info.smallest_subnormal, info.smallest_normal, info.max))
    wanted = (*_ORDINARY, 3 * tiny, -3 * tiny, normal / 2, -normal / 2, most, -most)
    with np.errstate(over="ignore"):
        values = np.array(wanted).astype(dtype)
    return np.concatenate([np.array(_SPECIAL).astype(dtype), values[np.isfinite(values)]])


def deviates(got: Array, x: Array, formula: str, *, tail: bool = True) -> npt.NDArray[np.bool_]:
    """Where `got` isn't GELU of `x`, by the bounds of the module's docstring; the signs of zeros count at ±0."""
    dtype = x.dtype
    x64, y = x.astype(np.float64), np.asarray(got, np.float64)
    want = gelu64(x64, formula)
    normal = float(finfo(dtype).smallest_normal)
    # A runtime may flush float32's subnormals to zero; float16's are computed in float32.
    least = normal if normal < 1e-30 else float(finfo(dtype).smallest_subnormal)
    inner = unit(np.float32) if dtype.itemsize == 2 else unit(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(y - want)
        right = off <= 2 * unit(dtype) * np.abs(want) + 4 * inner * np.abs(x64) + least
        if tail:
            right &= (off <= _TAIL * np.abs(want)) | (np.abs(want) < 2 * normal)
    right |= (y == want) | (np.isnan(y) & np.isnan(want))
    # Infinite x make the bound itself infinite or nan.
    right &= np.isfinite(x64) | (y == want) | np.isnan(x64)
    return np.asarray(~right | ((x64 == 0) & (np.signbit(y) != np.signbit(x64))))


def examine(model: onnx.ModelProto, folder: Path | None, formula: str, form: str, dtype: np.dtype[Any]) -> Activations:
    """Run every activation of a model by itself, at the lowest and the highest optimisation.

    Parameters
    ----------
    model : onnx.ModelProto
    folder : Path or None
        Where its external data stands.
    formula : {"none", "tanh", "quick"}
        What it should compute.
    form : str
        How it is spelled, one of `forms.FORMS`.
    dtype : dtype
        Of the tensors before and after.
    """
    element = forms.element_type(dtype.name)
    sites = graph.activations(model) or cut.find(model)
    parts = {before: cut.between(model, before, after, element) for before, after in sites}
    remarks = [f"the activation behind {name!r} can't be cut out" for name, part in parts.items() if part is None]
    if not sites:
        remarks.append("no activation was found between two linear layers, so none was run by itself")
    edges: list[Edge] = []
    failures: list[str] = []
    fresh = {level: _Fresh(form, dtype, model, level) for level in LEVELS}
    for name, part in parts.items():
        if part is not None:
            found, faults = _examine_one(name, part, folder, formula, dtype, fresh)
            edges += found
            failures += faults
    if any(edge.cause == "runtime" for edge in edges):
        remarks.append(_blame_runtime(edges, formula, form, dtype, model))
    run = tuple(name for name, part in parts.items() if part is not None)
    return Activations(run, tuple(edges), tuple(failures), tuple(remarks))


def _examine_one(
    name: str, part: onnx.ModelProto, folder: Path | None, formula: str, dtype: np.dtype[Any], made: dict[str, _Fresh]
) -> tuple[list[Edge], list[str]]:
    values, sweep = edge_values(dtype), np.linspace(-8, 8, 2049).astype(dtype)
    found: dict[tuple[float, float], Edge] = {}
    failures: list[str] = []

    def note(x: Any, got: Any, cause: str, level: str) -> None:
        key = (float(x), math.copysign(1, x))
        want = float(gelu64(np.array([float(x)]), formula)[0])
        edge = found.setdefault(key, Edge(name, float(x), float(got), want, cause, ()))
        if level not in edge.levels:
            found[key] = replace(edge, levels=(*edge.levels, level))

    for level in LEVELS:
        run = Runner(prepare(part, None, folder), level, threads=1)
        fresh = made[level]
        got = run(sweep)
        if (wrong := deviates(got, sweep, formula, tail=False)).any():
            if any(np.array_equal(got, other(sweep)) for other in fresh.runners(formula)):
                off = np.abs(got.astype(np.float64) - gelu64(sweep.astype(np.float64), formula))
                at = int(np.argmax(np.where(wrong, off, -1.0)))
                note(sweep[at], got[at], "runtime", level)
            else:
                text = _misnamed(got, sweep, formula, name, fresh)
                failures += [text] if text not in failures else []
        for got in _at_every_length(run, values):
            for i in np.flatnonzero(deviates(got, values, formula)):
                results = fresh.at_every_length(formula, values)
                same = any(_same(got[i], y[i], values[i]) for y, wrong in results if wrong[i])
                note(values[i], got[i], "runtime" if same else "model", level)
    faults = [edge for edge in found.values() if edge.cause == "model"]
    if faults and not failures:
        failures.append(f"activation behind {name!r}: {_list(faults)}")
    return list(found.values()), failures


class _Fresh:
    """The same form made anew, of any formula; sessions are made when they're asked for."""

    def __init__(self, form: str, dtype: np.dtype[Any], like: onnx.ModelProto, level: str) -> None:
        self._how = (form, dtype, like)
        self._level = level
        self._runners: dict[str, list[Runner]] = {}
        self._results: list[tuple[Array, npt.NDArray[np.bool_]]] = []

    def runners(self, formula: str) -> list[Runner]:
        """In the dtype and, for float16, in float32 between Casts as well; none if there is no such operator."""
        form, dtype, like = self._how
        if formula not in self._runners:
            programs = _programs(formula, form, dtype, like) if _exists(form, formula) else []
            self._runners[formula] = [Runner(program, self._level, threads=1) for program in programs]
        return self._runners[formula]

    def at_every_length(self, formula: str, values: Array) -> list[tuple[Array, npt.NDArray[np.bool_]]]:
        """What these give for the values, and where it is wrong; always asked for the same."""
        if not self._results:
            found = [y for run in self.runners(formula) for y in _at_every_length(run, values)]
            self._results = [(y, deviates(y, values, formula)) for y in found]
        return self._results


def _at_every_length(run: Runner, values: Array) -> list[Array]:
    """The values' results, once for every length in which they were fed, in the values' order."""
    results = []
    for length in LENGTHS:
        padded = np.resize(values, -(-len(values) // length) * length)
        rows = [run(row) for row in padded.reshape(-1, length)]
        results.append(np.concatenate(rows)[: len(values)])
    return results


def _misnamed(got: Array, x: Array, formula: str, name: str, fresh: _Fresh) -> str:
    for other in FORMS:
        if other == formula:
            continue
        right = not deviates(got, x, other, tail=False).any()
        if right or any(np.array_equal(got, run(x)) for run in fresh.runners(other)):
            return f"activation behind {name!r} computes the {other!r} formula, expected {formula!r}"
    off = np.abs(got.astype(np.float64) - gelu64(x.astype(np.float64), formula))
    at = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
    return f"activation behind {name!r} is no GELU: it gives {got[at]:.6g} at {x[at]:.6g}, off by {off[at]:.3g}"


def _exists(form: str, formula: str) -> bool:
    return (form, formula) != ("native", "quick")


def _programs(formula: str, form: str, dtype: np.dtype[Any], like: onnx.ModelProto) -> list[Program]:
    kinds = [dtype.name] if dtype.name != "float16" or form == "primitive" else ["float16", "float32"]
    return [prepare(canonical(formula, form, dtype.name, kind, like), None, None) for kind in kinds]


def canonical(formula: str, form: str, dtype: str, compute: str, like: onnx.ModelProto) -> onnx.ModelProto:
    """GELU alone in a form, computed in `compute` between Casts; opsets and IR version of another model."""
    helper: Any = require("onnx.helper")
    versions = {entry.domain: entry.version for entry in like.opset_import}
    opset = max(versions.get("", 0), forms.FIRST_OPSET[form])
    nodes = forms.Nodes(compute, "gelu.")
    if compute == dtype:
        forms.emit(form, formula, nodes, "x", "y")
    else:
        nodes.add("Cast", "x", output="wide", to=forms.element_type(compute))
        forms.emit(form, formula, nodes, "wide", "result")
        nodes.add("Cast", "result", output="y", to=forms.element_type(dtype))
    element = forms.element_type(dtype)
    imports = {"": opset, forms.CONTRIB: 1, forms.LOCAL: 1}
    made: onnx.ModelProto = helper.make_model(
        helper.make_graph(
            nodes.nodes, "gelu",
            [helper.make_tensor_value_info("x", element, ["n"])],
            [helper.make_tensor_value_info("y", element, ["n"])],
        ),
        functions=[forms.make_function(formula, compute, opset)] if form == "function" else [],
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in imports.items()],
        ir_version=max(like.ir_version, 8 if opset < 20 else 9),
    )  # fmt: skip
    return made


def _same(got: Any, fresh: Any, x: Any) -> bool:
    a, b = float(got), float(fresh)
    near = math.isfinite(x) and abs(a - b) <= 4 * unit(np.float32) * abs(float(x))
    return a == b or (math.isnan(a) and math.isnan(b)) or near


def _blame_runtime(edges: list[Edge], formula: str, form: str, dtype: np.dtype[Any], like: onnx.ModelProto) -> str:
    wrong = {(edge.x, repr(edge.got)): edge for edge in edges if edge.cause == "runtime"}
    values = np.array([edge.x for edge in wrong.values()]).astype(dtype)
    text = f"runtime: {runtime_name()} itself is wrong in form {form!r}: {_list(list(wrong.values()))}"
    for other in _RIGHT:
        if other == form or not _exists(other, formula):
            continue
        try:
            programs = _programs(formula, other, dtype, like)
            results = [Runner(program, level, threads=1)(values) for program in programs for level in LEVELS]
        except ValueError:  # no kernel for it
            continue
        if not any(deviates(y, values, formula).any() for y in results):
            return f"{text}; form={other!r} is right there"
    return text


def _list(edges: list[Edge]) -> str:
    shown = [f"gelu({edge.x:.6g}) = {edge.got:.6g}, not {edge.want:.6g}" for edge in edges[:4]]
    return ", ".join(shown) + (f" and {len(edges) - 4} more" if len(edges) > 4 else "")
