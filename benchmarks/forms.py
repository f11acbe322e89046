"""Which form of GELU is quickest in which onnxruntime: prints a table, and with --write remakes export/measured.py.

The onnxruntime that is installed is measured, and those that `make test-deploy` has put into .deploy/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from gelu_fast.export import export_ffn, targets
from gelu_fast.export.blocks import random_block

ROOT = Path(__file__).resolve().parents[1]
FEATURES, HIDDEN = 512, 2048
HEAD = '''"""Microseconds of each form, by (runtime, version, dtype, formula, rank of the input).

Of a 512 -> 2048 -> 512 block on one thread, the geometric mean over batches of 1, 8 and 128 rows. Made by
``python benchmarks/forms.py --write``; not to be edited by hand.
"""

from __future__ import annotations

MEASURED: dict[tuple[str, str, str, str, int], dict[str, float]] = {
'''


def write_models(folder: Path, target: str, dtypes: list[str]) -> dict[str, dict[str, object]]:
    """Groups of files that compute the same."""
    groups: dict[str, dict[str, object]] = {}
    for dtype in dtypes:
        for formula in ("none", "tanh", "quick"):
            for rank in (2, 3):
                files = {}
                for form in targets.available(target, formula, dtype, rank):
                    path = folder / f"{dtype}-{formula}-{rank}-{form}.onnx"
                    options = {"approximate": formula, "target": target, "form": form, "dtype": dtype}
                    dims = ("batch", "seq")[: rank - 1]
                    export_ffn(random_block(FEATURES, HIDDEN, 0), path, dims=dims, verify=False, **options)
                    files[form] = str(path)
                groups[f"{dtype} {formula} {rank}"] = {"rank": rank, "files": files}
    return groups


def measure(python: Path, version: str, dtypes: list[str]) -> dict[str, dict[str, list[float]]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        groups = write_models(folder, f"onnxruntime=={version}", dtypes)
        asked = folder / "asked.json"
        asked.write_text(json.dumps({"features": FEATURES, "groups": groups}))
        script = Path(__file__).with_name("time_models.py")
        done = subprocess.run([python, script, asked], capture_output=True, text=True, check=True)
    times: dict[str, dict[str, list[float]]] = json.loads(done.stdout)["times"]
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="remake export/measured.py")
    parser.add_argument("--dtypes", default="float32,float16,float64")
    args = parser.parse_args()
    found: dict[tuple[str, str, str, str, int], dict[str, float]] = {}
    table = Table(title=f"{FEATURES} → {HIDDEN} → {FEATURES}, one thread, µs at batch 1 / 8 / 128")
    for head in ("onnxruntime", "dtype", "formula", "rank", "form", "µs"):
        table.add_column(head, no_wrap=True)
    for row in targets.RUNTIMES:
        label = ".".join(map(str, row.version))
        if row.name != "onnxruntime":
            continue
        newest = row is [r for r in targets.RUNTIMES if r.name == row.name][-1]
        places = sorted((ROOT / ".deploy").glob(f"ort-{label}.*/bin/python"))
        python = Path(sys.executable) if newest else next(iter(places), None)
        if python is None:
            print(f"onnxruntime {label}: not in .deploy/ (make test-deploy puts it there)", file=sys.stderr)
            continue
        for name, times in measure(python, label, args.dtypes.split(",")).items():
            dtype, formula, rank = name.split()
            means = {form: float(np.exp(np.mean(np.log(values)))) for form, values in times.items()}
            found[row.name, label, dtype, formula, int(rank)] = means
            for form, values in times.items():
                mark = " *" if means[form] == min(means.values()) else ""
                table.add_row(label, dtype, formula, rank, form + mark, " / ".join(f"{v:,.0f}" for v in values))
    Console(width=110).print(table)
    if args.write:
        lines = [
            f"    {key!r}: {{\n        ".replace("'", '"')
            + ", ".join(f'"{form}": {t:.0f}' for form, t in means.items())
            + ",\n    },\n"
            for key, means in found.items()
        ]
        (ROOT / "export" / "measured.py").write_text(HEAD + "".join(lines) + "}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
