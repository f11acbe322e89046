"""The short form of the tables, for a README; from the JSON, so that an old run can be rendered too."""

from __future__ import annotations

from typing import Any


def render(found: dict[str, Any]) -> str:
    """Markdown: works by columns and data, each with our Gelem/s, the ratio to the best peer, and who that was.

    Parameters
    ----------
    found : dict
        As `report.to_dict` makes it, or a file of ``--json`` read again.

    Returns
    -------
    str
    """
    machine = found["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items() if v and k in _PEERS)
    columns = list(dict.fromkeys((c["size"], c["threads"]) for c in found["cells"]))
    heads = [f"{size:,}, {threads} thread{'s' if threads > 1 else ''}" for size, threads in columns]
    lines = [
        f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['isa']}; {versions}.", "",
        "| Gelem/s (ratio to the best peer) | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|",
    ]  # fmt: skip
    for work in dict.fromkeys(c["work"] for c in found["cells"]):
        cells = {(c["size"], c["threads"]): c for c in found["cells"] if c["work"] == work}
        lines.append(f"| {work} | " + " | ".join(_cell(cells[c]) if c in cells else "" for c in columns) + " |")
    works = list(dict.fromkeys(c["work"] for c in found["data"]))
    lines += ["", f"| data, {found['data'][0]['size']:,} elements, 1 thread | " + " | ".join(works) + " |"]
    lines.append("|---" * (len(works) + 1) + "|")
    for data in dict.fromkeys(c["data"] for c in found["data"]):
        cells = {c["work"]: c for c in found["data"] if c["data"] == data}
        lines.append(f"| {data} | " + " | ".join(_cell(cells[w]) if w in cells else "" for w in works) + " |")
    return "\n".join([*lines, ""])


_PEERS = ("torch", "onnxruntime", "jax", "scipy", "numba", "numpy")


def _cell(cell: dict[str, Any]) -> str:
    rows = {row["name"]: row for row in cell["rows"]}
    ours, best = rows["gelu_fast"], rows.get(cell["best_peer"])
    if "gelem_per_s" not in ours or best is None:
        return "WRONG" if "gelem_per_s" not in ours else f"{ours['gelem_per_s']:.2f}"
    return f"{ours['gelem_per_s']:.2f} ({best['ns_per_call'] / ours['ns_per_call']:.2f}× {best['name']})"
