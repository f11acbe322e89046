"""Write the folder of deployment cases: exported models, inputs, and answers that the exporter has no part in.

    python make_cases.py FOLDER

Three kinds of source: "block" (12 -> 35 -> 10, with biases), "stack" (three blocks, the first and the last alike, so
that weights are stored once) and "bare" (1 -> 1 -> 1 with weights 1 and no bias: y = gelu(x), element by element, which
shows what a block's sums hide: the tail, infinities, and exact against tanh in float16).
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import onnx
from oracle import feed_forward

from gelu_fast.export import export_ffn

LEVELS = ("disabled", "basic", "extended", "all")
FORMULAS = ("none", "tanh", "quick")
FORMS = ("auto", "native", "fusable", "contrib", "function", "primitive")
ANY = "onnxruntime>=1.17"  # reads everywhere, so its cases are run in every runtime
# Errors of a block, as `compare.error_of` counts them: a share of the row's largest output. float16 rounds the
# hidden layer, 2^-11 each.
BLOCK = {"float32": (3e-7, 6e-7), "float64": (5e-16, 1e-15), "float16": (1e-3, 5e-4)}
# Errors of GELU itself: absolute for the kernels and chains that form 1 + erf or 1 + tanh, ...
BARE = {"float32": (6e-7, 6e-7), "float16": (1e-6, 2.0**-10)}
# ... relative for the primitive form, down to the last subnormal; in float64 to the smallest normal number, since
# 1 + exp(w) overflows beyond it, as does the exp of 1.17.3.
TAIL = {"float32": (2.0**-149, 2.0**-22), "float64": (2.0**-1022, 1e-12), "float16": (2.0**-24, 2.0**-10)}
# float16 with no Casts in the file: every node rounds.
LOOSE = (6e-3, 4e-3)
SPECIAL = [-np.inf, np.inf, np.nan, 0.0, -0.0, 1e-7, -1e-7, 60000.0, -60000.0]


def refused(form, formula, dtype):
    """Whether the exporter has to refuse: ONNX has no quick operator, and only primitive computes float64."""
    return (form, formula) == ("native", "quick") or (dtype == "float64" and form not in ("auto", "primitive"))


def plans():
    """All cases as (source, target, form, formula, dtype, rank, external)."""
    for form, formula, dtype in itertools.product(FORMS, FORMULAS, ("float32", "float16", "float64")):
        if not refused(form, formula, dtype):
            for rank in (2, 3):
                yield "block", ANY, form, formula, dtype, rank, False
            yield "bare", ANY, form, formula, dtype, 2, False
    for target, formula, rank in itertools.product((None, "onnxruntime==1.20", "onnxruntime-web"), FORMULAS, (2, 3)):
        for dtype in ("float32", "float16", "float64"):
            yield "block", target, "auto", formula, dtype, rank, False
    for form, formula in itertools.product(FORMS[1:], FORMULAS):
        if not refused(form, formula, "float16"):
            yield "block", "opset 20", form, formula, "float32", 3, False
            yield "block", "opset 20", form, formula, "float16", 2, False
    yield "stack", ANY, "auto", "none", "float32", 2, False
    yield "stack", ANY, "auto", "tanh", "float32", 3, True
    yield "block", ANY, "auto", "none", "float32", 2, True


def source(kind, dtype):
    """The blocks of a kind of source."""
    rng = np.random.default_rng(8)

    def block(inside, hidden, outside):
        shapes = (inside, hidden), (hidden,), (hidden, outside), (outside,)
        # Hidden values of about N(0, 1.5): the formulas differ most for 0.5 to 3.
        scales = 1.5 / np.sqrt(inside), 0.5, 1 / np.sqrt(hidden), 0.5
        return tuple((rng.standard_normal(s) * k).astype(dtype) for s, k in zip(shapes, scales, strict=True))

    if kind == "bare":
        return [(np.ones((1, 1), dtype), None, np.ones((1, 1), dtype), None)]
    if kind == "block":
        return [block(12, 35, 10)]
    first = block(12, 20, 12)
    return [first, block(12, 33, 12), first]


def inputs(kind, form, dtype, rank):
    """The batches of a case: 0, 1 and 7 rows (or sequences)."""
    rng = np.random.default_rng(9)
    if kind != "bare":
        for shape in ((0, 12), (1, 12), (7, 12)) if rank == 2 else ((0, 3, 12), (1, 1, 12), (7, 3, 12)):
            yield rng.standard_normal(shape).astype(dtype)
        return
    # Where a kernel that forms 1 + erf keeps nothing, only the primitive form has to be right.
    values = np.concatenate([np.linspace(-5, 5, 201), [-13.24, -9.0, 13.24]])
    yield values[:, None].astype(dtype)
    if form == "primitive":
        last = {"float32": -14.2, "float64": -38.4, "float16": -5.6}[dtype]
        yield np.concatenate([np.linspace(last, 0, 301), SPECIAL])[:, None].astype(dtype)


def tolerance(kind, target, form, dtype):
    """{"absolute", "relative"} of a case."""
    if target is not None and target.startswith("opset") and dtype == "float16" and form != "primitive":
        found = LOOSE
    elif kind == "bare" and (form == "primitive" or dtype == "float64"):
        found = TAIL[dtype]
    else:
        found = (BARE if kind == "bare" else BLOCK)[dtype]
    return dict(zip(("absolute", "relative"), found, strict=True))


def write_case(folder, number, plan):
    """Export one case, write its inputs and answers; returns its entry of cases.json."""
    kind, target, form, formula, dtype, rank, external = plan
    name = f"{number:03d}-{kind}-{form}-{formula}-{dtype}-{rank}d"
    blocks = source(kind, dtype)
    report = export_ffn(
        blocks[0] if len(blocks) == 1 else blocks,
        folder / f"{name}.onnx",
        approximate=formula,
        target=target,
        form=form,
        dims=("batch", "seq")[: rank - 1],
        external_data=external or "auto",
        verify=False,
    )
    model = onnx.load(folder / f"{name}.onnx", load_external_data=False)
    batches = []
    for index, x in enumerate(inputs(kind, report.form, dtype, rank)):
        entry = {"x": f"{name}.{index}.x", "shape": x.shape, "y": f"{name}.{index}.y"}
        y = feed_forward(x, blocks, formula)
        x.astype(x.dtype.newbyteorder("<")).tofile(folder / entry["x"])
        y.astype("<f8").tofile(folder / entry["y"])
        batches.append({**entry, "y_shape": y.shape})
    ask = {"kind": kind, "target": target, "form": report.form, "formula": formula, "rank": rank,
           "opset": max(entry.version for entry in model.opset_import if entry.domain == ""),
           "ir": model.ir_version}  # fmt: skip
    return {"id": name, "model": f"{name}.onnx", "data": [file.name for file in report.files[1:]], "dtype": dtype,
            "input": model.graph.input[0].name, "levels": LEVELS, "batches": batches, "ask": ask,
            "tolerance": tolerance(kind, target, report.form, dtype)}  # fmt: skip


def write(folder):
    """Write every case and cases.json into an existing folder; returns the entries."""
    folder = Path(folder)
    cases = [write_case(folder, number, plan) for number, plan in enumerate(plans())]
    (folder / "cases.json").write_text(json.dumps({"cases": cases}), encoding="utf-8")
    return cases


if __name__ == "__main__":
    print(len(write(sys.argv[1])), "cases")
