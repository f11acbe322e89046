"""The text of ``coefficients.py`` and ``cpu/coefficients.h``, from what generate_coefficients.py has found."""

from __future__ import annotations

import struct
from typing import Any

try:
    from .generate_cuda_coefficients import render_cuda
    from .generate_jit_coefficients import render_jit
except ImportError:  # run as a script, from the source tree
    from generate_cuda_coefficients import render_cuda  # type: ignore[import-not-found, no-redef]
    from generate_jit_coefficients import render_jit  # type: ignore[import-not-found, no-redef]


def render_python(
    data: dict[str, dict[str, Any]], jit: dict[str, dict[str, Any]], cuda: dict[str, dict[str, Any]]
) -> str:
    out = [
        '"""Every number of every approximation; made by generate_coefficients.py, which says what they mean."""',
        "# ruff: noqa",
        "# Per table: rows[segment] = [centre, c0, c1, ...]; the first `plain` segments fit F, the others P.",
        "# errors: of the rounded polynomial, relative.",
        "# F64_EXP: 1 - exp(-r) = sum coefs[k]*r**k. F32_EXP: exp(r/2) - 1 = sum coefs[k]*r**k; P is divided by scale,",
        "# table[j] = scale * 2**(j/8). F32_CONSTANTS: of w = 2y.", "",
    ]  # fmt: skip
    for dtype, parts in data.items():
        name = dtype.upper()
        out += [f"{name}_CONSTANTS = {{", *(f'    "{k}": "{v}",' for k, v in parts["constants"].items()), "}", ""]
        out += [f"{name}_EXP = {{", *(f'    "{k}": {v!r},' for k, v in parts["exp"].items()), "}", ""]
        for layout, tables in parts["layouts"].items():
            out.append(f"{layout.upper()}_TABLES = {{")
            for key, table in tables.items():
                out.append(f"    {key!r}: {{")
                keys = ("scale", "offset", "t_max", "degree", "plain", "careful")
                out += [f'        "{k}": {table[k]!r},' for k in keys]
                out += [f'        "{k}": [{", ".join(map(repr, table[k]))}],' for k in ("intervals", "errors")]
                out += ['        "rows": [', *(f"            {row!r}," for row in table["rows"])]
                out += ["        ],", "    },"]
            out += ["}", ""]
    return "\n".join([*out, *render_jit(jit), *render_cuda(cuda)])


def c_table(stem: str, layout: str, table: dict[str, Any], ctype: str, suffix: str) -> list[str]:
    out = [f"#define GF_{k.upper()}_{stem} {table[k]}{suffix}" for k in ("scale", "offset", "t_max")]
    out.append(f"#define GF_DEGREE_{stem} {table['degree']}")
    rows = table["rows"]
    if layout == "f64":
        out.append(f"#define GF_SEGMENTS_{stem} {len(rows)}")
    elif layout == "f64x16":
        rows = [list(column) for column in zip(*rows, strict=True)]
    else:
        out.append(f"#define GF_CAREFUL_{stem} {table['careful']:d}")
        half = len(rows) // 2
        rows = [[row[k] for row in rows[half:] + rows[:half]] for k in range(table["degree"] + 2)]
    out.append(f"static alignas(64) const {ctype} gf_{stem}[{len(rows)}][{len(rows[0])}] = {{")
    return [*out, *("    {" + ", ".join(v + suffix for v in row) + "}," for row in rows), "};", ""]


def render_c(data: dict[str, dict[str, Any]]) -> str:
    """The C header: float tables by column, so that one look-up fetches a coefficient for every lane; double by row.

    A float column is ordered by the lowest bit of z's exponent and its leading significand bits: z in [8, 16) comes
    first, [4, 8) second.
    """
    out = [
        "/* Made by generate_coefficients.py, which says what the numbers mean. Do not edit. */",
        "#ifndef GF_COEFFICIENTS_H", "#define GF_COEFFICIENTS_H", "", "#include <stdalign.h>", "",
    ]  # fmt: skip
    for dtype, parts in data.items():
        ctype, suffix = ("float", "f") if dtype == "f32" else ("double", "")
        name = dtype.upper()
        out += [f"#define GF_{name}_{k} {v}{suffix}" for k, v in parts["constants"].items()]
        out.append(f"#define GF_{name}_EXP_DEGREE {parts['exp']['degree']}")
        coefs = ", ".join(c + suffix for c in parts["exp"]["coefs"])
        out += [f"static const {ctype} GF_{name}_EXP[] = {{{coefs}}};", ""]
        if dtype == "f32":
            eighths = ", ".join(c + suffix for c in parts["exp"]["table"])
            out += [f"static alignas(32) const float GF_F32_EXP_TABLE[8] = {{{eighths}}};", ""]
        if dtype == "f64":
            offset = float.fromhex(parts["layouts"]["f64"]["none", 0]["offset"])
            first = struct.unpack(">Q", struct.pack(">d", offset))[0] >> 47
            out += [f"#define GF_F64_FIRST {first:#x} /* z's leading 17 bits at t = 0 */", ""]
        for layout, tables in parts["layouts"].items():
            for (form, order), table in tables.items():
                out += c_table(f"{form}{order}_{layout}", layout, table, ctype, suffix)
    return "\n".join([*out, "#endif", ""])
