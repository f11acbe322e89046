"""Models that nobody here exported, by onnx.helper, and what the tests of quantize ask of a file."""

import hashlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

IN, HIDDEN, OUT = 64, 96, 48


def weights(rng, *shape):
    return (rng.uniform(-1, 1, shape) / np.sqrt(shape[0])).astype(np.float32)


def block(seed=0):
    rng = np.random.default_rng(seed)
    return weights(rng, IN, HIDDEN), weights(rng, HIDDEN), weights(rng, HIDDEN, OUT), weights(rng, OUT)


def model(nodes, tensors, inputs=(("x", ["n", IN]),), outputs=(("y", ["n", OUT]),), opset=20, **options):
    """tensors: arrays by name. inputs, outputs: (name, shape), float32."""
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, **options)


def gemm_model(turned=True, **attributes):
    """Gemm → Gelu → Gemm; turned: with transB=1, as torch's exporters write nn.Linear."""
    w1, b1, w2, b2 = block()
    if turned:
        w1, w2, attributes = w1.T.copy(), w2.T.copy(), attributes | {"transB": 1}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["hidden"], **attributes),
        helper.make_node("Gelu", ["hidden"], ["activated"]),
        helper.make_node("Gemm", ["activated", "w2", "b2"], ["y"], **attributes),
    ]
    return model(nodes, {"w1": w1, "b1": b1, "w2": w2, "b2": b2})


def save(made, path):
    onnx.save(made, path)
    return path


def inputs(rows=40, seed=1, width=IN):
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


def run(path, x, outputs=()):
    """The first output, or the tensors named, at full optimisation."""
    made = onnx.load(path)
    if outputs:
        made.graph.ClearField("output")
        made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    kind = session.get_inputs()[0]
    x = x.astype(np.float16) if kind.type == "tensor(float16)" else x
    found = session.run(None, {kind.name: x})
    return found if outputs else found[0]


def relative(a, b):
    """Largest error in a row over the largest value in the row, the worst row's."""
    a, b = (np.asarray(v, np.float64).reshape(-1, v.shape[-1]) for v in (a, b))
    return float((np.abs(a - b).max(axis=1) / np.abs(b).max(axis=1)).max())


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def initializers(path):
    """Arrays by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
