"""A site's nodes as a model of their own: what a runtime makes of them can be seen, and their values compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gelu_fast.export.lazy import require
from gelu_fast.export.sites import Site, used_elsewhere

if TYPE_CHECKING:
    import onnx

_WIDTH = 8


def standalone(model: Any, site: Site, element: int) -> onnx.ModelProto:
    """The site from "x" of shape (n, 8) to "y", its own nodes as they are; a bias becomes an input of shape (8,).

    Parameters
    ----------
    model : ir.Model
    site : Site
    element : int
        TensorProto's number of the type.

    Returns
    -------
    onnx.ModelProto
        y is negated at the end, unless it is an output of its graph: onnxruntime doesn't fuse every chain that is an
        output. What is used elsewhere, inside of the site, is an output too, which keeps onnxruntime from fusing it.
    """
    ir: Any = require("onnx_ir")
    helper: Any = require("onnx.helper")
    nodes: list[Any] = []
    stored: dict[str, Any] = {}
    seen: set[int] = set()

    def gather(value: Any) -> None:
        """The producers of a constant, or its tensor."""
        if value is None or value is site.entry or value is site.bias or id(value) in seen:
            return
        seen.add(id(value))
        node = value.producer()
        if node is None:
            if value.const_value is not None:
                tensor = ir.to_proto(value.const_value)
                tensor.name = value.name
                stored[value.name] = tensor
            return
        for operand in node.inputs:
            gather(operand)
        nodes.append(ir.to_proto(node))

    for node in site.nodes:
        seen |= {id(v) for v in node.outputs}
    for node in site.nodes:
        for operand in node.inputs:
            gather(operand)
        nodes.append(ir.to_proto(node))
    entries = [(site.entry.name, ["n", _WIDTH])] + ([(site.bias.name, [_WIDTH])] if site.bias is not None else [])
    inner = used_elsewhere(site)
    results = [value.name for value in inner] + [site.output.name]
    kinds = [element if value.dtype is None else int(value.dtype) for value in inner] + [element]
    if not (site.output.is_graph_output() and isinstance(site.nodes[0].graph, ir.Graph)):
        results[-1] = f"{site.output.name}.negated"
        nodes.append(helper.make_node("Neg", [site.output.name], results[-1:]))
    graph = helper.make_graph(
        nodes,
        "site",
        [helper.make_tensor_value_info(name, element, shape) for name, shape in entries],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(results, kinds, strict=True)],
        list(stored.values()),
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
    functions = [ir.to_proto(function) for function in model.functions.values()]
    made: onnx.ModelProto = helper.make_model(
        graph, functions=functions, opset_imports=imports, ir_version=model.ir_version or 8
    )
    return made


def operators_run(model: onnx.ModelProto) -> tuple[str, ...] | None:
    """What onnxruntime keeps of a `standalone` model after all optimisation; None if it can't load it."""
    import tempfile
    from pathlib import Path

    onnx: Any = require("onnx")
    runtime: Any = require("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory(prefix="gelu-fast-") as folder:
        path = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(path)
        try:
            runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception:  # onnxruntime's exceptions share no public base class
            return None
        kept = onnx.load(path).graph.node
    return tuple(f"{n.domain}.{n.op_type}" if n.domain else str(n.op_type) for n in kept if n.op_type != "Neg")
