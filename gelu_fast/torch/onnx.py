"""What torch.onnx.export writes for our operators."""

from __future__ import annotations

from typing import Any


def onnx_translations() -> dict[Any, Any]:
    """For ``torch.onnx.export(..., dynamo=True, custom_translation_table=...)``.

    Returns
    -------
    dict
        From operator to function: the standard ``Gelu`` for the exact and the tanh form (opset 20 and up), and
        x·Sigmoid(1.702·x) for the quick form.

    Raises
    ------
    ImportError
        If onnxscript is missing: extra ``onnx``.
    """
    try:
        from onnxscript import opset20 as op
    except ImportError as error:
        raise ImportError(
            "gelu_fast.torch.onnx_translations needs onnxscript: pip install 'gelu-fast[onnx]'"
        ) from error
    from .ops import gelu

    def translate(x: Any, approximate: str) -> Any:
        if approximate == "quick":
            slope: Any = op.CastLike(op.Constant(value_float=1.702), x)  # type: ignore[type-var]
            return op.Mul(x, op.Sigmoid(op.Mul(x, slope)))
        return op.Gelu(x, approximate=approximate)

    return {gelu: translate}
