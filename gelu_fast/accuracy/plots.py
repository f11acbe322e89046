"""Error against x in float32, ours beside the peers' that are installed; the others are named as absent.

Per function: the largest error in each of some hundred bins of x, in ULP on a logarithmic scale, against `oracle`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gelu_fast.bounds import ULP
from gelu_fast.output_files import check_file, check_folder, write_all
from gelu_fast.pictures import CYCLE, FAINT, GREY, render, require
from gelu_fast.pictures import OURS as OUR_STYLE

from .functions import FUNCTIONS, Function
from .oracle import oracle
from .rounding import ulps32

Array = npt.NDArray[Any]
Call = Callable[[Array], Array]

RANGE = {"none": (-15.0, 6.0), "tanh": (-11.5, 6.0), "quick": (-66.0, 12.0)}
_BINS, _PER_BIN = 240, 4096
_FLOOR = 0.05  # errors are drawn from here up
OURS = "gelu_fast"
STYLES = {OURS: OUR_STYLE, "torch": CYCLE[0], "onnxruntime": CYCLE[1], "jax": CYCLE[2], "scipy": CYCLE[3]}


class AbsentError(Exception):
    """The peer is not installed, or has no such function."""


def draw_all(directory: Path, overwrite: bool = False, report: Callable[[str, int], None] | None = None) -> list[Path]:
    """Draw every function.

    Parameters
    ----------
    directory : Path
        Takes ``error-NAME.svg``, all at the end; made if absent.
    overwrite : bool
    report : callable, optional
        Called before each with its name and the number of them all.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    FileExistsError, NotADirectoryError, FileNotFoundError
        Before anything is computed.
    """
    check_folder(directory, "--plot")
    goals = {directory / f"error-{function.name}.svg": function for function in FUNCTIONS.values()}
    for path in goals:
        check_file(path, "--plot", overwrite)
    files = {}
    for path, function in goals.items():
        if report is not None:
            report(function.name, len(goals))
        files[path] = render(draw(function), "svg")
    write_all(files, overwrite, "--plot")
    return list(files)


def draw(function: Function) -> Any:
    """One function; a Matplotlib figure."""
    low, high = RANGE[function.form]
    edges = np.linspace(low, high, _BINS + 1)
    x = np.random.default_rng(0).uniform(edges[:-1, None], edges[1:, None], (_BINS, _PER_BIN)).astype(np.float32)
    value = oracle(x.ravel(), function.form, function.order)
    figure = require("matplotlib.figure").Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    middle, absent = (edges[:-1] + edges[1:]) / 2, []
    for number, (name, make) in enumerate({OURS: _ours, **PEERS}.items()):
        try:
            call = make(function)
        except AbsentError as reason:
            absent.append(f"{name} ({reason})")
            continue
        error = ulps32(np.asarray(call(x.ravel()), np.float32), value).reshape(_BINS, _PER_BIN).max(axis=1)
        # Markers far apart, each line's in places of their own.
        axes.plot(middle, np.maximum(error, _FLOOR), label=name, markevery=(6 * number, 30), **STYLES[name].line(),
                  zorder=4 if name == OURS else 3)  # fmt: skip
    bound = ULP[function.kind, "float32"]
    axes.axhline(bound, color=GREY, lw=1)
    axes.annotate(f"stated:\n{bound:g} ULP", (1, bound), xycoords=axes.get_yaxis_transform(), xytext=(4, 0),
                  textcoords="offset points", va="center", color=GREY, fontsize=8)  # fmt: skip
    axes.set(xlabel="x", ylabel="largest error in the bin, ULP", yscale="log", xlim=(low, high))
    axes.set_title(f"{function.name}, float32", loc="left")
    axes.grid(axis="y", color=FAINT, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=len(STYLES), loc="lower right", bbox_to_anchor=(1, 1), fontsize=9, handlelength=4)
    if absent:
        figure.text(0.01, -0.03, "Not drawn: " + "; ".join(absent), fontsize=8, color=GREY)
    return figure


# -- ours and the peers: each gives a float32 function of a float32 array, or raises ------------------------------

def _ours(function: Function) -> Call:
    return lambda x: np.asarray(function.ufunc(x))


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise AbsentError("not installed") from None


def _torch(function: Function) -> Call:
    torch = _module("torch")

    def forward(t: Any) -> Any:
        if function.form == "quick":
            return t * torch.sigmoid(1.702 * t)
        return torch.nn.functional.gelu(t, approximate=function.form)

    def call(x: Array) -> Array:
        t = torch.from_numpy(x).requires_grad_(function.order > 0)
        y = forward(t)
        for _ in range(function.order):
            (y,) = torch.autograd.grad(y.sum(), t, create_graph=True)
        return np.asarray(y.detach().numpy())

    return call


def _onnxruntime(function: Function) -> Call:
    if function.order:
        raise AbsentError("no derivatives")
    if function.form == "quick":
        raise AbsentError("no quick form in standard ONNX")
    runtime, onnx = _module("onnxruntime"), _module("onnx")
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("Gelu", ["x"], ["y"], approximate=function.form)
    ends = [[helper.make_tensor_value_info(name, number, ["n"])] for name in ("x", "y")]
    graph = helper.make_graph([node], "gelu", *ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda x: np.asarray(session.run(None, {"x": x})[0])


def _jax(function: Function) -> Call:
    jax = _module("jax")

    def forward(t: Any) -> Any:
        if function.form == "quick":
            return t * jax.nn.sigmoid(1.702 * t)
        return jax.nn.gelu(t, approximate=function.form == "tanh")

    for _ in range(function.order):
        forward = jax.grad(forward)
    return lambda x: np.asarray((jax.vmap(forward) if function.order else forward)(x))


def _scipy(function: Function) -> Call:
    """As it is written: x*ndtr(x), x*expit(v)."""
    special = _module("scipy.special")
    if function.order:
        raise AbsentError("no derivatives")
    if function.form == "none":
        return lambda x: np.asarray(x * special.ndtr(x))
    slope, cubic = np.float32(2 * np.sqrt(2 / np.pi)), np.float32(0.044715)
    if function.form == "tanh":
        return lambda x: np.asarray(x * special.expit(slope * (x + cubic * x * x * x)))
    return lambda x: np.asarray(x * special.expit(np.float32(1.702) * x))


PEERS: dict[str, Callable[[Function], Call]] = {
    "torch": _torch, "onnxruntime": _onnxruntime, "jax": _jax, "scipy": _scipy,
}  # fmt: skip
