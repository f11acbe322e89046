"""Times groups of ONNX files by turns; needs numpy and onnxruntime alone, so that old environments can run it.

Usage: python time_models.py FILE.json, which holds {"features": n, "groups": {name: {form: path}}}; prints
{name: {form: [microseconds at each batch]}}. Files of a group must agree first.
"""

import json
import sys
import time

import numpy as np
import onnxruntime

BATCHES = (1, 8, 128)
SECONDS = 0.25  # for each file, batch and round
ROUNDS = 5


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def time_group(files, features, rank):
    sessions = {form: session(path) for form, path in files.items()}
    out = {form: [] for form in files}
    for batch in BATCHES:
        kind = next(iter(sessions.values())).get_inputs()[0].type
        dtype = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}[kind]
        shape = (batch, features) if rank == 2 else (1, batch, features)
        x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        results = [s.run(None, {"x": x})[0].astype(np.float64) for s in sessions.values()]
        allowed = {"float32": 1e-4, "float16": 2e-2, "float64": 1e-10}[dtype] * np.abs(results[0]).max()
        worst = max(np.abs(r - results[0]).max() for r in results)
        if not worst <= allowed:
            raise SystemExit(f"{files}: results differ by {worst}")
        best = {form: [] for form in sessions}
        for _ in range(ROUNDS):
            for form, s in sessions.items():
                times, end = [], time.perf_counter() + SECONDS / ROUNDS
                while time.perf_counter() < end or len(times) < 3:
                    start = time.perf_counter()
                    s.run(None, {"x": x})
                    times.append(time.perf_counter() - start)
                best[form].append(float(np.median(times)) * 1e6)
        for form, medians in best.items():
            out[form].append(round(float(np.median(medians)), 1))
    return out


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as stream:
        asked = json.load(stream)
    found = {
        name: time_group(group["files"], asked["features"], group["rank"]) for name, group in asked["groups"].items()
    }
    print(json.dumps({"version": onnxruntime.__version__, "times": found}))
