"""Microseconds of each form, by (runtime, version, dtype, formula, rank); benchmarks/forms.py remakes this file."""

from __future__ import annotations

MEASURED: dict[tuple[str, str, str, str, int], dict[str, float]] = {}
