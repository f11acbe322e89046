"""onnxruntime: one-node models, I/O binding onto given memory, so that no call allocates or copies."""

from __future__ import annotations

from functools import partial
from typing import Any

from .contenders import Array, Contender, NotOfferedError, Peer, aligned, load
from .work import Work

# By form: domain, operator, attributes.
_OPERATORS: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "none": [("", "Gelu", {}), ("com.microsoft", "Gelu", {})],
    "tanh": [("", "Gelu", {"approximate": "tanh"}), ("com.microsoft", "FastGelu", {})],
    "quick": [("com.microsoft", "QuickGelu", {"alpha": 1.702})],
}
_ELEMENT_TYPES = {"float32": 1, "float16": 10, "float64": 11}


class OnnxRuntime(Peer):
    """Gelu of opset 20, and com.microsoft's Gelu, FastGelu and QuickGelu, on the CPU provider."""

    name = "onnxruntime"
    packages = ("onnxruntime", "onnx")

    def bind(self, work: Work, x: Array, dy: Array | None, threads: int) -> list[Contender]:
        """As `Peer.bind`."""
        if work.backward:
            raise NotOfferedError("onnxruntime has no gradient outside its training build")
        if work.dtype not in _ELEMENT_TYPES:
            raise NotOfferedError(f"onnxruntime has no {work.dtype} Gelu on a CPU")
        bound, reasons = [], []
        for domain, operator, attributes in _OPERATORS[work.form]:
            name = f"{self.name} {domain + '.' if domain else ''}{operator}{'' if domain else '-20'}"
            try:
                session = _session(domain, operator, attributes, work.dtype, threads)
            except Exception as error:  # its exceptions have no common base but this
                reasons.append(f"{name}: {str(error).split(':', 3)[-1].strip()[:120]}")
                continue
            out = aligned(x.size, x.dtype)
            binding = session.io_binding()
            for bind, label, array in ((binding.bind_input, "x", x), (binding.bind_output, "y", out)):
                bind(label, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
            bound.append(Contender(name, partial(session.run_with_iobinding, binding), partial(_same, out)))
        if not bound:
            raise NotOfferedError("; ".join(reasons))
        return bound


def _same(array: Array) -> Array:
    return array


def _session(domain: str, operator: str, attributes: dict[str, Any], dtype: str, threads: int) -> Any:
    onnxruntime, helper = load("onnxruntime"), load("onnx.helper")
    element = _ELEMENT_TYPES[dtype]
    values = [helper.make_tensor_value_info(name, element, ["n"]) for name in "xy"]
    node = helper.make_node(operator, ["x"], ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "gelu", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Its threads may spin within a run, but not on into the turn of whoever comes next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
