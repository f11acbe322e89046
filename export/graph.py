"""The ONNX model of a block: x @ w1 + b1 → Gelu → @ w2 + b2.

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

from gelu_fast.export.lazy import require
from gelu_fast.export.sources import Block

if TYPE_CHECKING:
    import onnx

OPSET = 20  # the first with a standard Gelu
IR_VERSION = 9  # the newest that onnxruntime 1.17 reads; onnx's default is refused by several runtimes
PRODUCER = "gelu_fast"
INPUT, OUTPUT = "x", "y"
FORMULAS = {
    "none": "x·Φ(x) = ½x·erfc(−x/√2)",
    "tanh": "½x·(1 + tanh(√(2/π)·(x + 0.044715x³)))",
    "quick": "x·σ(1.702x)",
}
# ONNX stores the model as one protobuf message, which can't pass 2 GiB; leave room for the graph itself.
MAX_BYTES = 2**31 - 2**20


def package_version() -> str:
    """The installed gelu-fast's version, "unknown" when it runs uninstalled."""
    try:
        return importlib.metadata.version("gelu-fast")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def build_model(block: Block, approximate: str, dims: Sequence[str]) -> onnx.ModelProto:
    """Build and check the model; the same block and options give the same bytes.

    Parameters
    ----------
    block : Block
        float32 weights.
    approximate : {"none", "tanh"}
        The attribute of the Gelu node.
    dims : sequence of str
        Names of the leading axes, all dynamic; the input's rank is ``len(dims) + 1``.

    Returns
    -------
    onnx.ModelProto
        Opset 20, IR 9, passed by `onnx.checker` in full mode and by strict shape inference.

    Raises
    ------
    NotImplementedError
        If the weights don't fit one file (2 GiB).
    """
    helper: Any = require("onnx.helper")
    numpy_helper: Any = require("onnx.numpy_helper")
    size = sum(array.nbytes for array in block.tensors.values())
    if size > MAX_BYTES:
        raise NotImplementedError(
            f"external_data: the weights take {size:,} bytes and one ONNX file holds at most {MAX_BYTES:,}; "
            "external data isn't served yet"
        )
    element = helper.np_dtype_to_tensor_dtype(np.dtype(np.float32))
    nodes: list[Any] = []

    def add(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=f"{output}/{op}", **attributes))
        return output

    def affine(x: str, weight: str, bias: str, output: str) -> str:
        if bias not in block.tensors:
            return add("MatMul", [x, weight], output)
        return add("Add", [add("MatMul", [x, weight], f"{output}_matmul"), bias], output)

    hidden = affine(INPUT, "w1", "b1", "hidden")
    activated = add("Gelu", [hidden], "activated", approximate=approximate)
    affine(activated, "w2", "b2", OUTPUT)
    graph = helper.make_graph(
        nodes,
        "feed_forward",
        [helper.make_tensor_value_info(INPUT, element, [*dims, block.in_features])],
        [helper.make_tensor_value_info(OUTPUT, element, [*dims, block.out_features])],
        [numpy_helper.from_array(array, name) for name, array in block.tensors.items()],
        doc_string=f"y = gelu(x @ w1 + b1) @ w2 + b2, gelu(x) = {FORMULAS[approximate]}",
    )
    model: onnx.ModelProto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name=PRODUCER,
        producer_version=package_version(),
        doc_string="Feed-forward block with GELU, exported by gelu_fast",
    )
    helper.set_model_props(model, {
        "gelu_fast.formula": approximate,
        "gelu_fast.formula_text": FORMULAS[approximate],
        "gelu_fast.form": "native",
        "gelu_fast.block": "ffn",
    })  # fmt: skip
    check_model(model)
    return model


def check_model(model: onnx.ModelProto) -> None:
    """`onnx.checker` in full mode, strict shape inference, and every stored tensor's size.

    Raises
    ------
    ValueError
        With the checker's reason, or the name of the tensor whose data doesn't fill its shape.
    """
    checker: Any = require("onnx.checker")
    shape_inference: Any = require("onnx.shape_inference")
    for tensor in model.graph.initializer:
        if tensor.HasField("raw_data") and tensor.data_type in _ITEM_BYTES:
            want = int(np.prod(list(tensor.dims), dtype=np.int64)) * _ITEM_BYTES[tensor.data_type]
            if len(tensor.raw_data) != want:
                raise ValueError(
                    f"tensor {tensor.name!r}: shape {tuple(tensor.dims)} needs {want} bytes, "
                    f"the model holds {len(tensor.raw_data)}"
                )
    try:
        checker.check_model(model, full_check=True)
        shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (checker.ValidationError, shape_inference.InferenceError) as error:
        raise ValueError(f"not a valid ONNX model: {error}") from error


# TensorProto's numbers for float, double, float16, bfloat16, int64, int32.
_ITEM_BYTES = {1: 4, 11: 8, 10: 2, 16: 2, 7: 8, 6: 4}


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
