"""The ONNX model of a stack of blocks: x @ w1 + b1 → GELU → @ w2 + b2, once or several times over.

MatMul + Add, not Gemm: with a 2-D input onnxruntime 1.32 turns the pair into the same Gemm it would be given
(1.29 ms against 1.31 ms for 33 rows of 512→2048→512, one thread), with a 3-D input, where Gemm isn't defined,
it fuses Add and Gelu into BiasGelu (FastGelu for tanh), and dynamic quantisation knows MatMul but not
Gemm(transB=1).
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gelu_fast.export import forms
from gelu_fast.export.lazy import require
from gelu_fast.export.sources import Array, Stack
from gelu_fast.export.targets import Plan

if TYPE_CHECKING:
    import onnx

PRODUCER = "gelu_fast"
INPUT, OUTPUT = "x", "y"
FORMULAS = {
    "none": "x·Φ(x) = ½x·erfc(−x/√2)",
    "tanh": "½x·(1 + tanh(√(2/π)·(x + 0.044715x³)))",
    "quick": "x·σ(1.702x)",
}


def package_version() -> str:
    """The installed gelu-fast's version, "unknown" when it runs uninstalled."""
    try:
        return importlib.metadata.version("gelu-fast")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def prefix(stack: Stack, index: int) -> str:
    """What the names of block `index` begin with."""
    return f"layers.{index}." if len(stack.blocks) > 1 else ""


def stored(stack: Stack) -> tuple[dict[str, Array], dict[str, tuple[str, bool]]]:
    """What stands in the file, every weight once.

    Returns
    -------
    tensors : dict
        Names to arrays, in the order of `Stack.tensors`.
    alias : dict
        Each other tensor's name to (the name of the stored tensor it equals, whether transposed).
    """
    tensors: dict[str, Array] = {}
    alias: dict[str, tuple[str, bool]] = {}
    seen: dict[tuple[int, ...], list[str]] = {}  # by shape
    for name, array in stack.tensors.items():
        found = None
        if array.ndim == 2:
            same = next((n for n in seen.get(array.shape, ()) if _equal(tensors[n], array)), None)
            turned = next((n for n in seen.get(array.shape[::-1], ()) if _equal(tensors[n].T, array)), None)
            found = (same, False) if same is not None else (turned, True) if turned is not None else None
        if found is None:
            tensors[name] = array
            seen.setdefault(array.shape, []).append(name)
        else:
            alias[name] = found
    return tensors, alias


def _equal(a: Array, b: Array) -> bool:
    """Equal bits: -0.0 and 0.0 differ. The first row settles most comparisons."""
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return bool((a[:1].view(unsigned) == b[:1].view(unsigned)).all() and (a.view(unsigned) == b.view(unsigned)).all())


def build_model(stack: Stack, formula: str, plan: Plan, dims: Sequence[str]) -> onnx.ModelProto:
    """Build the model with its weights named but empty; the same stack and options give the same bytes.

    Parameters
    ----------
    stack : Stack
        Weights of one dtype, which the model's tensors have too.
    formula : {"none", "tanh", "quick"}
    plan : Plan
        Form, opset and IR version.
    dims : sequence of str
        Names of the leading axes, all dynamic; the input's rank is ``len(dims) + 1``.

    Returns
    -------
    onnx.ModelProto
        Its initialisers have name, shape and type; `exporter` fills them or points them at a file.
    """
    helper: Any = require("onnx.helper")
    proto: Any = require("onnx").TensorProto
    tensors, alias = stored(stack)
    dtype = stack.dtype.name
    element = forms.element_type(dtype)
    nodes = forms.Nodes(dtype, "")
    turned: dict[str, str] = {}

    def find(name: str) -> str:
        stand_in, transposed = alias.get(name, (name, False))
        if not transposed:
            return stand_in
        if stand_in not in turned:
            turned[stand_in] = nodes.add("Transpose", stand_in, output=f"{stand_in}.transposed", perm=[1, 0])
        return turned[stand_in]

    def affine(x: str, label: str, number: int, output: str) -> None:
        bias = f"{label}b{number}"
        if bias not in stack.tensors:
            nodes.add("MatMul", x, find(f"{label}w{number}"), output=output)
            return
        product = nodes.add("MatMul", x, find(f"{label}w{number}"), output=f"{output}_matmul")
        nodes.add("Add", product, find(bias), output=output)

    x = INPUT
    for index in range(len(stack.blocks)):
        label = nodes.prefix = prefix(stack, index)
        hidden, activated = f"{label}hidden", f"{label}activated"
        # With a 2-D input MatMul and Add become a Gemm, which is worth more than an Add inside of the activation.
        with_bias = forms.WITH_BIAS.get(formula) if plan.form == "contrib" and len(dims) > 1 else None
        if with_bias and plan.compute == dtype and f"{label}b1" in stack.tensors:
            nodes.add("MatMul", x, find(f"{label}w1"), output=hidden)
            nodes.add(with_bias, hidden, find(f"{label}b1"), output=activated, domain=forms.CONTRIB)
        else:
            affine(x, label, 1, hidden)
            nodes.prefix = f"{label}gelu."
            forms.emit(plan.form, formula, nodes, hidden, activated, plan.compute)
            nodes.prefix = label
        x = OUTPUT if index == len(stack.blocks) - 1 else f"{label}out"
        affine(activated, label, 2, x)
    equation = "y = gelu(x @ w1 + b1) @ w2 + b2"
    graph = helper.make_graph(
        nodes.nodes,
        "feed_forward",
        [helper.make_tensor_value_info(INPUT, element, [*dims, stack.in_features])],
        [helper.make_tensor_value_info(OUTPUT, element, [*dims, stack.out_features])],
        [proto(name=name, data_type=element, dims=array.shape) for name, array in tensors.items()],
        doc_string=f"{equation}, gelu(x) = {FORMULAS[formula]}",
    )
    imports = [helper.make_opsetid("", plan.opset)]
    functions = []
    if plan.form == "contrib":
        imports.append(helper.make_opsetid(forms.CONTRIB, 1))
    if plan.form == "function":
        imports.append(helper.make_opsetid(forms.LOCAL, 1))
        functions.append(forms.make_function(formula, plan.compute, plan.opset))
    model: onnx.ModelProto = helper.make_model(
        graph,
        functions=functions,
        opset_imports=imports,
        ir_version=plan.ir_version,
        producer_name=PRODUCER,
        producer_version=package_version(),
        doc_string="Feed-forward block with GELU, exported by gelu_fast",
    )
    helper.set_model_props(model, {
        "gelu_fast.formula": formula,
        "gelu_fast.formula_text": FORMULAS[formula],
        "gelu_fast.form": plan.form,
        "gelu_fast.block": "ffn",
        "gelu_fast.layers": str(len(stack.blocks)),
        "gelu_fast.target": plan.target,
    })  # fmt: skip
    return model


def activations(model: onnx.ModelProto) -> list[tuple[str, str]]:
    """The tensors (before, after) each GELU of a model that `build_model` made; of another model none."""
    stated = {entry.key: entry.value for entry in model.metadata_props}
    if model.producer_name != PRODUCER or stated.get("gelu_fast.block") != "ffn":
        return []
    names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    labels = [name.removesuffix("hidden") for name in names if name == "hidden" or name.endswith(".hidden")]
    labels = [label for label in labels if f"{label}activated" in names]
    return [(f"{p}hidden", f"{p}activated") for p in sorted(labels, key=lambda p: (len(p), p))]


def check_model(model: Any) -> None:
    """`onnx.checker` in full mode and strict shape inference.

    Parameters
    ----------
    model : onnx.ModelProto, or the path of a file
        A path for external data: the checker reads it there.

    Raises
    ------
    ValueError
        With the checker's reason.
    """
    checker: Any = require("onnx.checker")
    shape_inference: Any = require("onnx.shape_inference")
    try:
        checker.check_model(model, full_check=True)
        if not isinstance(model, str):
            shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (checker.ValidationError, shape_inference.InferenceError) as error:
        raise ValueError(f"not a valid ONNX model: {error}") from error


def check_dims(dims: Sequence[str]) -> tuple[str, ...]:
    """Check the names of the leading axes.

    Raises
    ------
    TypeError, ValueError
        Naming `dims`, and saying what was expected.
    """
    if isinstance(dims, str) or not isinstance(dims, Sequence) or not all(isinstance(d, str) for d in dims):
        raise TypeError(f"dims: expected a sequence of names such as ('batch',) or ('batch', 'seq'), got {dims!r}")
    names = tuple(dims)
    if not names or len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
        raise ValueError(f"dims: expected one or more different names, each an identifier, got {names!r}")
    return names
