"""onnxruntime: sessions over a model at each optimisation level, and the kernels that they run.

What a session runs is read from its profile and not from the optimised model it can save, which would write the
weights to the disk once per level.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gelu_fast.export.blocks import Array, Stack
from gelu_fast.export.lazy import require
from gelu_fast.export.reference import finfo
from gelu_fast.export.widened import float32_copy

if TYPE_CHECKING:
    import onnx

PROVIDER = "CPUExecutionProvider"
LEVELS = ("disable", "basic", "extended", "all")
# onnxruntime's names of the types, which are C++'s.
_TYPES = {"float": "float32", "double": "float64"}


@dataclass(frozen=True)
class Program:
    """What is given to onnxruntime for a model.

    Attributes
    ----------
    source : bytes or str
        The serialised model, or its path: what's checked is then what was written.
    folder : Path or None
        Where the external data of a serialised model stands.
    widened : bool
        Whether it is a copy in float32 between Casts.
    nodes : frozenset of str
        Names of the nodes that the model itself has.
    """

    source: bytes | str
    folder: Path | None
    widened: bool
    nodes: frozenset[str]


def prepare(model: onnx.ModelProto, path: Path | None, folder: Path | None) -> Program:
    """The model as it stands or, for bfloat16, which has no kernels on the CPU, `widened.float32_copy` of it.

    Parameters
    ----------
    model : onnx.ModelProto
    path : Path or None
        Where it stands; None to run the model in memory.
    folder : Path or None
        Where its external data stands.
    """
    onnx: Any = require("onnx")
    names = frozenset(node.name for node in model.graph.node)
    if any(value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 for value in model.graph.input):
        copy = float32_copy(model)
        names |= frozenset(node.name for node in copy.graph.node)
        return Program(copy.SerializeToString(), folder, True, names)
    if path is not None:
        return Program(str(path), None, False, names)
    return Program(model.SerializeToString(), folder, False, names)


def runtime_name() -> str:
    """Name, version and execution provider."""
    return f"onnxruntime {require('onnxruntime').__version__} ({PROVIDER})"


class Runner:
    """An onnxruntime session over a model.

    Parameters
    ----------
    program : Program
    level : {"disable", "basic", "extended", "all"}
        Of graph optimisation.
    profile : Path, optional
        A folder for `look` to write to.
    threads : int
        0 for onnxruntime's own choice.
    """

    def __init__(self, program: Program, level: str = "all", *, profile: Path | None = None, threads: int = 0) -> None:
        runtime: Any = require("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        levels = runtime.GraphOptimizationLevel
        options.graph_optimization_level = getattr(
            levels, {"disable": "ORT_DISABLE_ALL"}.get(level, f"ORT_ENABLE_{level.upper()}")
        )
        if program.folder is not None:
            key = "session.model_external_initializers_file_folder_path"
            options.add_session_config_entry(key, str(program.folder))
        self.level, self._program = level, program
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile / level)
        try:
            self._session = runtime.InferenceSession(program.source, options, providers=[PROVIDER])
        except Exception as error:  # onnxruntime's exceptions share no public base class
            raise ValueError(
                f"path_or_model: onnxruntime {runtime.__version__} can't load it (optimisation {level!r}): {error}"
            ) from error
        kind = self._session.get_inputs()[0]
        self._input = kind.name
        self._feed = {"tensor(float16)": np.float16, "tensor(double)": np.float64}.get(kind.type, np.float32)

    def __call__(self, x: Array) -> Array:
        """The output for an input of any floating dtype; of a widened copy the output is float32."""
        try:
            return np.asarray(self._session.run(None, {self._input: x.astype(self._feed, copy=False)})[0])
        except Exception as error:  # as above
            raise ValueError(
                f"path_or_model: {runtime_name()} can't run it on an input of {x.shape} "
                f"(optimisation {self.level!r}): {error}"
            ) from error

    def look(self, x: Array) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Run once and say what ran: operators, kernels, and the Casts that onnxruntime put in, each in order.

        Only once, of a session with a folder for its profile.
        """
        self(x)
        events = json.loads(Path(self._session.end_profiling()).read_text("utf-8"))
        operators, kernels, casts = [], [], []
        for event in events:
            if event.get("cat") != "Node" or not event["name"].endswith("_kernel_time"):
                continue
            arguments = event["args"]
            read, written = _types(arguments, "input_type_shape"), _types(arguments, "output_type_shape")
            operator, name = str(arguments["op_name"]), event["name"].removesuffix("_kernel_time")
            operators.append(operator)
            kernels.append(f"{operator}({read[0] if read else ''}) {arguments['provider']}")
            if operator == "Cast" and name not in self._program.nodes:
                place = name.removeprefix("InsertedPrecisionFreeCast_").removeprefix("InsertedCast_")
                casts.append(f"{place}: {read[0]} → {written[0]}")
        return tuple(operators), tuple(kernels), tuple(casts)


def _types(arguments: Mapping[str, Any], key: str) -> list[str]:
    found = [next(iter(entry)) for entry in arguments.get(key) or () if entry]
    return [_TYPES.get(name, name) for name in found]


def hard_rows(stack: Stack, dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    """Rows that show errors random ones hide; (rows, in), finite in the dtype."""
    n = stack.in_features
    single = np.zeros((6, n))
    for row, index in enumerate(np.linspace(0, n - 1, len(single)).astype(int)):
        single[row, index] = 3.0 if row % 2 else -3.0
    random = rng.standard_normal((8, n))
    with np.errstate(invalid="ignore", over="ignore"):  # weights may hold nan and infinities, if they were let through
        hidden = random @ stack.blocks[0].w1.astype(np.float64)
        spread = np.sqrt(np.mean(hidden**2, axis=1, keepdims=True))
    scale = 1 / np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)
    # The formulas differ most for hidden values of 0.5 to 3.
    levels = np.array([0.5, 1.0, 1.0, 1.5, 2.2, 2.2, 3.0, 10.0])[:, None]
    rows = [np.zeros((1, n)), np.ones((1, n)), -np.ones((1, n)), single, random * scale * levels,
            random[:2] * 100, random[2:4] * 1e-20]  # fmt: skip
    limit = min(1e30, float(finfo(dtype).max) / 2)
    with np.errstate(under="ignore"):
        return np.asarray(np.clip(np.concatenate(rows), -limit, limit).astype(dtype))
