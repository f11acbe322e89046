"""GELU feed-forward blocks as ONNX files that are proven to compute them.

`export_ffn` writes a file and runs it in onnxruntime before it lets the file appear; `verify` does the same
comparison for a file that exists. onnx and onnxruntime load on first use: ``pip install 'gelu-fast[onnx]'``.
"""

from gelu_fast.export.exporter import export_ffn
from gelu_fast.export.report import ExportReport, VerificationError, VerifyReport

# The function takes the place of the module of the same name, on purpose: gelu_fast.export.verify(...) is the
# public spelling. `from gelu_fast.export.verify import check` still finds the module.
from gelu_fast.export.verify import verify

__all__ = ["ExportReport", "VerificationError", "VerifyReport", "export_ffn", "verify"]
