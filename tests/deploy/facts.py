"""What the reports of the runtimes on the probe models say, as one table for export/targets.py."""

import re
from collections import Counter

import onnx
from compare import read_cases


def kept(row):
    """The operators that a report's row ended with, in graph order, Microsoft's with "ms." before them.

    From the model that the runtime saved; for onnxruntime-web from the profile, which knows no domains.
    """
    if row.get("optimised"):
        nodes = onnx.load(row["optimised"], load_external_data=False).graph.node
        return ["ms." * (node.domain == "com.microsoft") + node.op_type for node in nodes]
    return row["operators"]


def summarise(folder, report):
    """The facts of one runtime from its report on the folder of probe models."""
    asks = {case["id"]: case["ask"] for case in read_cases(folder)}
    facts = {"runtime": report["runtime"], "version": report["version"], "opsets": [], "irs": [], "kernels": {},
             "chains": {}}  # fmt: skip
    rows = {}
    for row in report["rows"]:
        rows.setdefault(row["case"], {})[row["level"]] = row
    for case, levels in rows.items():
        ask, good = asks[case], all(row["error"] is None for row in levels.values())
        if ask["kind"] == "opset" and good:
            facts["opsets"].append(ask["opset"])
        elif ask["kind"] == "ir" and good:
            facts["irs"].append(ask["ir"])
        elif ask["kind"] == "kernel":
            facts["kernels"].setdefault(ask["op"], {})[ask["dtype"]] = _kernel(ask, levels)
        elif ask["kind"] == "chain":
            key = f"rank {ask['rank']}, {ask['dtype']}, opset {ask['opset']}"
            found = {level: _chain(row) for level, row in levels.items()}
            if len(set(found.values())) == 1:
                found = {"every level": found["all"]}
            facts["chains"].setdefault(ask["chain"], {})[key] = found
    return facts


def _kernel(ask, levels):
    """"kernel", "casts" (to float32 and back), "function" (its body runs), or the refusal."""
    for row in levels.values():
        if row["error"]:
            return f"{row['level']}: {row['stage']} fails: {_short(row['error'])}"
    found = kept(levels["disabled"])
    name = ask["op"].split()[0].replace("com.microsoft.", "ms.")
    # bfloat16 comes in through a Cast, and leaves through one unless the answer has another type.
    ours = 0 if ask["dtype"] != "bfloat16" else 1 if ask["op"].startswith(("Cast", "Less", "Greater")) else 2
    casts = found.count("Cast") - ours - (name == "Cast")
    text = "kernel" if name in found or name.removeprefix("ms.") in found else "function body"
    return text if casts <= 0 else f"{text}, through {casts} casts"


def _chain(row):
    if row["error"]:
        return f"{row['stage']} fails: {_short(row['error'])}"
    return " ".join(name if count == 1 else f"{count}*{name}" for name, count in sorted(Counter(kept(row)).items()))


def _short(error):
    """The refusal in a few words that are the same in every language binding."""
    missing = re.search(r"(?:Could not find an implementation|Failed to find kernel) for ([\w.]+)", error)
    if missing:
        return f"no kernel for {missing[1]}"
    refused = re.search(r"Type '\S+' of input parameter \(\w+\) of operator \(\w+\)", error)
    return refused[0] + " is invalid" if refused else error[:200]
