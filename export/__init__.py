"""GELU in ONNX files: made, proven, found and rewritten.

`export_ffn` writes a file and runs it in onnxruntime before it lets the file appear; `verify` does the same
comparison for a file that exists; `inspect` finds every GELU of any model, `rewrite` spells them another way,
`quantize` stores a model in fewer bits, `export_page` makes a page that runs one in the browser, `score` runs one over
a dask array. onnx and onnxruntime load on first use: ``pip install 'gelu-fast[onnx]'``.
"""

from gelu_fast.export.exporter import export_ffn
from gelu_fast.export.inspection import GeluSite, inspect
from gelu_fast.export.page import export_page
from gelu_fast.export.quantize import quantize
from gelu_fast.export.quantize_compare import compare_methods
from gelu_fast.export.quantize_report import Comparison, QuantizationError, QuantizeReport
from gelu_fast.export.report import ExportReport, VerificationError, VerifyReport

# The functions take the place of the modules of the same names, on purpose: gelu_fast.export.verify(...) is the
# public spelling. `from gelu_fast.export.verify import check` still finds the module.
from gelu_fast.export.rewrite import rewrite
from gelu_fast.export.score import score
from gelu_fast.export.verify import verify

__all__ = [
    "Comparison", "ExportReport", "GeluSite", "QuantizationError", "QuantizeReport", "VerificationError",
    "VerifyReport", "compare_methods", "export_ffn", "export_page", "inspect", "quantize", "rewrite", "score", "verify",
]  # fmt: skip
