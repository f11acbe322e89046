"""The calls of onnxruntime's quantisers, and the repair of what they leave behind.

    dynamic, dynamic-per-channel   int8 weights, uint8 activations whose range is found anew in every run
    static, static-per-channel     the same with ranges from calibration data, as QuantizeLinear/DequantizeLinear pairs
    float16                        every float32 tensor, but GELU as one node, which stays float32 between Casts
    int4                           blocks of 32 weights with a scale and a zero point each, as MatMulNBits

Outputs of products are not quantised by static, which onnxruntime does by default: the GELU's input on 8 bits made the
error 3 to 6 times larger (0.025 → 0.07 to 0.16 of the largest output, 512→2048→512) and nothing faster. MatMulNBits
computes with accuracy level 4 (activations on 8 bits by block): about 3 times faster for one row than level 0, which is
slower than the float model, for an error of 0.145 instead of 0.136. Blocks of 128 made 0.142 and 0.141.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gelu_fast.export.lazy import require
from gelu_fast.export.loading import tensors
from gelu_fast.export.quantize_data import Feed
from gelu_fast.export.quantize_graph import GELUS, add_types, copied, drop_unused, name_nodes, replace_nodes, sort_nodes
from gelu_fast.export.quantize_prepare import Prepared

METHODS = ("dynamic", "dynamic-per-channel", "static", "static-per-channel", "float16", "int4")
BLOCK = 32  # weights per scale of int4
ACCURACY_LEVEL = 4
FLOAT16_LARGEST = 65504.0
_PRE_PROCESSED = ("onnx.quant.pre_process", "onnxruntime.quant")  # shapes are inferred; without it, a warning each time


class _Messages(logging.Handler):
    """Collects what the quantisers warn of. While it is there, one of their modules can't set up logging at import."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() not in self.texts:
            self.texts.append(record.getMessage())


@contextlib.contextmanager
def messages() -> Iterator[list[str]]:
    """The warnings that anything logs meanwhile."""
    handler, root = _Messages(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler.texts
    finally:
        root.removeHandler(handler)


def describe(method: str, reduce_range: bool, keep_io_types: bool) -> tuple[str, dict[str, Any]]:
    """How weights are stored, and the settings that are reported."""
    if method == "float16":
        return "float16", {"inputs and outputs": "float32" if keep_io_types else "float16"}
    if method == "int4":
        return (f"4 bits, a scale and a zero point for {BLOCK} rows of each column",
                {"block": BLOCK, "symmetric": False, "accuracy level": ACCURACY_LEVEL})  # fmt: skip
    bits = "int8 (7 bits used)" if reduce_range else "int8"
    stored = f"{bits}, {'per column' if method.endswith('channel') else 'per tensor'}"
    settings: dict[str, Any] = {"weights": stored, "activations": "uint8, per tensor", "outputs": "float32"}
    return stored, settings | ({"ranges": "min and max"} if method.startswith("static") else {})


def run(
    method: str, prepared: Prepared, feeds: list[Feed] | None, folder: Path, reduce_range: bool, progress: bool
) -> Any:
    """The quantised model of any method but float16.

    Parameters
    ----------
    method : str
    prepared : Prepared
        Left as it is.
    feeds : list of dict, optional
        Calibration data, for static.
    folder : Path
        For the tools' own files.
    reduce_range : bool
    progress : bool

    Returns
    -------
    onnx.ModelProto
    """
    model = copied(prepared.model)
    model.metadata_props.add(key=_PRE_PROCESSED[0], value=_PRE_PROCESSED[1])
    with _refusals():
        result = _quantised(method, model, prepared, feeds, folder, reduce_range, progress)
    _tie(result, prepared.copies)
    return result


def _quantised(
    method: str,
    model: Any,
    prepared: Prepared,
    feeds: list[Feed] | None,
    folder: Path,
    reduce_range: bool,
    progress: bool,
) -> Any:
    if method == "int4":
        module: Any = require("onnxruntime.quantization.matmul_nbits_quantizer")
        # Of 4 bits by default; the parameter that says so is newer than the oldest onnxruntime allowed.
        quantizer = module.MatMulNBitsQuantizer(
            model, block_size=BLOCK, accuracy_level=ACCURACY_LEVEL, nodes_to_exclude=prepared.excluded
        )
        quantizer.process()
        return quantizer.model.model
    tools: Any = require("onnxruntime.quantization")
    temporary = folder / "quantised.onnx"
    options = {
        "nodes_to_quantize": [use.node.name for use in prepared.uses],
        "per_channel": method.endswith("per-channel"),
        "reduce_range": reduce_range,
        "weight_type": tools.QuantType.QInt8,
    }
    if method.startswith("static"):
        extra = {"OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"]}
        with _reader(tools.CalibrationDataReader, feeds or [], progress) as reader:
            options |= {"activation_type": tools.QuantType.QUInt8, "extra_options": extra}
            tools.quantize_static(model, temporary, reader, op_types_to_quantize=["MatMul", "Gemm"], **options)
    else:
        tools.quantize_dynamic(model, temporary, op_types_to_quantize=["MatMul"], **options)
    result = require("onnx").load(temporary)
    temporary.unlink()
    return result


def to_float16(model: Any, keep_io_types: bool) -> tuple[Any, list[str], list[str]]:
    """The model in float16, the names of the nodes that stay float32, and remarks.

    Raises
    ------
    ValueError
        If a weight has no float16 value near it, or there is nothing to convert.
    """
    converter: Any = require("onnxruntime.transformers.float16")
    model = copied(model)
    name_nodes(model)
    _constants_as_tensors(model)
    remarks = _check_range(model)
    # GELU as one node: onnxruntime computes it in float32 anyway, but takes it apart first if it is given float16.
    gelus = [node.name for node in model.graph.node if node.op_type in GELUS]
    blocked = [node.name for node in model.graph.node if node.op_type in converter.DEFAULT_OP_BLOCK_LIST]
    add_types(model)
    with _refusals():
        result = converter.convert_float_to_float16(
            model, keep_io_types=keep_io_types, node_block_list=gelus, disable_shape_infer=True
        )
    return result, gelus + blocked, remarks


def restore(model: Any, original: Any, method: str) -> None:
    """Give a quantised model the original's description, and drop what the tools noted for themselves."""
    sort_nodes(model.graph)
    known = {value.name for value in original.graph.value_info}
    infos = [value for value in model.graph.value_info if value.name in known]
    copies = [copied(value) for value in infos]
    model.graph.ClearField("value_info")
    model.graph.value_info.extend(copies)
    model.graph.name, model.graph.doc_string = original.graph.name, original.graph.doc_string
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(model, field, getattr(original, field))
    model.ClearField("metadata_props")
    model.metadata_props.extend(original.metadata_props)
    version = require("onnxruntime").__version__
    form = [entry for entry in model.metadata_props if entry.key == "gelu_fast.form"]
    if form and form[0].value == "function":  # its body now stands in the graph
        form[0].value = "fusable"
    stated = {"gelu_fast.quantization": method, "gelu_fast.quantized_by": f"onnxruntime {version}"}
    for entry in list(model.metadata_props):
        if entry.key in stated:
            entry.value = stated.pop(entry.key)
    for key, value in stated.items():
        model.metadata_props.add(key=key, value=value)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise
    except Exception as error:  # the tools raise whatever comes
        version = require("onnxruntime").__version__
        raise ValueError(
            f"path: onnxruntime {version}'s quantiser doesn't take the model: {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def _reader(base: Any, feeds: list[Feed], progress: bool) -> Iterator[Any]:
    """onnxruntime's interface to the data, with a bar if asked for."""
    with contextlib.ExitStack() as stack:
        advance = None
        if progress:
            console = require("rich.console", "cli").Console(stderr=True)
            bar = stack.enter_context(require("rich.progress", "cli").Progress(console=console))
            task = bar.add_task("calibration", total=len(feeds))

            def advance() -> None:
                bar.advance(task)

        class Reader(base):  # type: ignore[misc]
            def __init__(self) -> None:
                self._feeds = iter(feeds)
                self._started = False

            def get_next(self) -> Feed | None:
                if advance is not None and self._started:
                    advance()
                self._started = True
                return next(self._feeds, None)

        yield Reader()


def _tie(model: Any, copies: dict[str, str]) -> None:
    """Replace a quantised weight that is another one's transpose by a Transpose of it."""
    onnx: Any = require("onnx")
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    array = onnx.numpy_helper.to_array
    for copy, root in copies.items():
        parts = ("_quantized", "_scale", "_zero_point")
        missing = [name + part for name in (copy, root) for part in parts if name + part not in held]
        if missing:
            raise ValueError(f"path: tensor {root!r} can't stay shared: onnxruntime left no {', '.join(missing)}")
        mine, its = ([array(held[name + part]) for part in parts] for name in (copy, root))
        if not all(np.array_equal(a, b) for a, b in zip((mine[0].T, *mine[1:]), its, strict=True)):
            raise ValueError(
                f"path: tensor {root!r} is shared, but onnxruntime scaled it differently for each use; untie=True "
                "(--untie) stores it once for each"
            )
        for node in model.graph.node:
            for place, name in enumerate(node.input):
                if name in (f"{copy}_scale", f"{copy}_zero_point"):
                    node.input[place] = root + name[len(copy) :]
        turn = onnx.helper.make_node(
            "Transpose", [f"{root}_quantized"], [f"{copy}_quantized"], name=f"{copy}_quantized/Transpose", perm=[1, 0]
        )
        replace_nodes(model.graph, [turn, *model.graph.node])
        drop_unused(model.graph, {f"{copy}_scale", f"{copy}_zero_point"})
        index = next(i for i, tensor in enumerate(model.graph.initializer) if tensor.name == f"{copy}_quantized")
        del model.graph.initializer[index]
        held = {tensor.name: tensor for tensor in model.graph.initializer}


def _constants_as_tensors(model: Any) -> None:
    """Constant's numbers as tensors: the converter doesn't see value_float."""
    helper: Any = require("onnx.helper")
    float32 = require("onnx").TensorProto.FLOAT
    for node in model.graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            values = {"value_float": [attribute.f], "value_floats": list(attribute.floats)}.get(attribute.name)
            if values is not None:
                shape = () if attribute.name == "value_float" else (len(values),)
                tensor = helper.make_tensor("value", float32, shape, values)
                attribute.CopyFrom(helper.make_attribute("value", tensor))


def _check_range(model: Any) -> list[str]:
    onnx: Any = require("onnx")
    remarks: list[str] = []
    rounded: list[str] = []
    found = False
    for tensor in tensors(model):
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        array = np.abs(onnx.numpy_helper.to_array(tensor))
        if array.size == 1:  # -3.4e38 in a mask, for instance, is as good as -65504
            if not array.item() <= FLOAT16_LARGEST:
                remarks.append(
                    f"the constant {tensor.name} of size {array.item():.4g} becomes {FLOAT16_LARGEST:g} at most"
                )
            continue
        found = True
        if not np.isfinite(array).all():
            raise ValueError(f"path: tensor {tensor.name!r} holds nan or infinities; expected finite weights")
        if (array > FLOAT16_LARGEST).any():
            raise ValueError(
                f"path: tensor {tensor.name!r} reaches {array.max():.4g} and float16 ends at {FLOAT16_LARGEST:g}; "
                "onnxruntime's converter would cut it off without a word"
            )
        small = int(((array > 0) & (array < 2.0**-14)).sum())
        if small:
            rounded.append(f"{tensor.name}: {small} of {array.size} values")
    if rounded:
        more = f" and {len(rounded) - 4} more tensors" if len(rounded) > 4 else ""
        remarks.append(f"below 6.1e-5, float16's normal range, and round more: {', '.join(rounded[:4])}{more}")
    if not found:
        raise ValueError("path: no tensor is float32, so there is nothing to convert to float16")
    return remarks
