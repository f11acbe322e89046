"""Run a folder of cases in this Python's onnxruntime: NumPy and onnxruntime 1.17 or newer are all it needs.

    python run_python.py FOLDER [OPTIMISED_FOLDER]

Every case is loaded at every optimisation level and run on every batch. Prints one JSON document. With a second
folder, what each session kept is saved there, for whoever has onnx to read the operators.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from compare import compare, read_array, read_cases

LEVELS = {
    "disabled": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def run_case(folder, case, level, optimised):
    """One row of the report; errors of the runtime are text in it, since a refusal may be what's expected."""
    row = {"case": case["id"], "level": level, "stage": "load", "error": None, "optimised": None, "batches": []}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if optimised:
        row["optimised"] = str(Path(optimised) / f"{case['id']}.{level}.onnx")
        options.optimized_model_filepath = row["optimised"]
    try:
        session = onnxruntime.InferenceSession(
            str(Path(folder) / case["model"]), options, providers=["CPUExecutionProvider"]
        )
        row["stage"] = "run"
        for batch in case["batches"]:
            x = read_array(folder, batch["x"], case["dtype"], batch["shape"])
            (y,) = session.run(None, {case["input"]: x})
            row["batches"].append(compare(folder, case, batch, y))
    except Exception as error:  # onnxruntime's exceptions share no public base class
        row["error"] = f"{type(error).__name__}: {error}"[:600]
    row["passed"] = row["error"] is None and all(batch["passed"] for batch in row["batches"])
    return row


def main(folder, optimised=None):
    """Print the report of a folder."""
    rows = [run_case(folder, case, level, optimised) for case in read_cases(folder) for level in case["levels"]]
    name = {"runtime": "onnxruntime", "version": onnxruntime.__version__, "numpy": np.__version__}
    json.dump({**name, "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
