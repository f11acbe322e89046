"""Whether a runtime's report on the deployment cases is what it has to be; prints or returns what isn't."""

from compare import compare, decode, read_cases
from facts import kept

# The highest opset and IR version that each reads, "newest" being 1.32; tests/test_deploy.py proves them with the probe
# models.
READS = {"newest": (28, 14), "1.17.3": (20, 9), "1.20.1": (21, 10), "node": (26, 13), "wasm": (26, 13),
         "chromium": (26, 13)}  # fmt: skip
# What GELU can end as; of Microsoft's operators the name alone, since onnxruntime-web tells no more.
WHOLE = {"Gelu", "FastGelu", "BiasGelu", "QuickGelu"}


def fill(folder, report):
    """Judge the batches of a JavaScript runner, which sends its outputs; run_python.py has done so itself."""
    cases = {case["id"]: case for case in read_cases(folder)}
    for row in report["rows"]:
        case = cases[row["case"]]
        if "outputs" in row:
            row["batches"] = [
                compare(folder, case, batch, decode(got["data"], got["dtype"]).reshape(got["shape"]))
                for batch, got in zip(case["batches"], row.pop("outputs"), strict=False)
            ]
            row["passed"] = row["error"] is None and all(batch["passed"] for batch in row["batches"])
    return report


def expected(name, ask, level, dtype):
    """The operators among WHOLE that a case must end with at "extended" and "all"; None where none are stated.

    A float16 case for a named target computes GELU in float32 between two Casts of its own, which stand between the
    bias and GELU until "all" takes them away (in 1.30 and later).
    """
    stated = dtype == "float32" or (dtype == "float16" and not str(ask["target"]).startswith("opset"))
    if not stated or level not in ("extended", "all") or ask["form"] == "primitive":
        return None
    formula = ask["formula"]
    # Whether a bias stands right before GELU: with two axes it has become part of a Gemm.
    bias = ask["rank"] == 3 and (dtype == "float32" or (level == "all" and name not in ("1.17.3", "1.20.1")))
    if ask["form"] == "native":
        if name == "1.17.3":
            return set()  # the function body, operator by operator
        return {{"none": "BiasGelu", "tanh": "FastGelu"}[formula] if bias and name != "1.20.1" else "Gelu"}
    if formula == "none":
        # 1.20.1 makes a standard Gelu of the chain at opset 20, and doesn't give that its bias.
        alone = ask["form"] != "contrib" and name == "1.20.1" and ask["opset"] >= 20
        return {"BiasGelu" if bias and not alone else "Gelu"}
    return {{"tanh": "FastGelu", "quick": "QuickGelu"}[formula]}


def faults(name, folder, report):
    """One line per case and level that failed; an empty list is a pass.

    Every case whose opset and IR version a runtime reads has to load at every level, run on every batch, agree with
    the stored answers and end with the stated operators; a case that it can't read has to be refused.
    """
    found = []
    asks = {case["id"]: case for case in read_cases(folder)}
    seen = set()
    for row in fill(folder, report)["rows"]:
        case = asks[row["case"]]
        ask, label = case["ask"], f"{row['case']} ({case['ask']['target']}) at {row['level']}"
        seen.add((row["case"], row["level"]))
        readable = ask["opset"] <= READS[name][0] and ask["ir"] <= READS[name][1]
        if not readable:
            if row["stage"] != "load" or not row["error"]:
                found.append(f"{label}: read, though its opset is {ask['opset']} and its IR version {ask['ir']}")
        elif row["error"]:
            found.append(f"{label}: {row['stage']}: {row['error'][:200]}")
        elif len(row["batches"]) != len(case["batches"]) or not row["passed"]:
            found += [f"{label}: {b}, tolerated {case['tolerance']}" for b in row["batches"] if not b["passed"]]
            found += [f"{label}: {len(row['batches'])} of {len(case['batches'])} batches"] * (row["passed"])
        else:
            want = expected(name, ask, row["level"], case["dtype"])
            got = {operator.removeprefix("ms.") for operator in kept(row)} & WHOLE
            if want is not None and got != want:
                found.append(f"{label}: GELU ended as {sorted(got)}, expected {sorted(want)}")
    missing = {(case["id"], level) for case in asks.values() for level in case["levels"]} - seen
    return found + [f"{case} at {level}: not run" for case, level in sorted(missing)]
