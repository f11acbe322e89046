"""The three forms of GELU: their names, the names other libraries use, and float64 reference formulas.

| name      | formula                                         |
|-----------|-------------------------------------------------|
| ``none``  | x·Φ(x) = ½x·erfc(−x/√2)                         |
| ``tanh``  | ½x·(1 + tanh(√(2/π)·(x + 0.044715x³))) = x·σ(2u) |
| ``quick`` | x·σ(1.702x)                                     |

Source: Hendrycks & Gimpel, "Gaussian Error Linear Units", https://arxiv.org/abs/1606.08415.
"""

from __future__ import annotations

import math

FORMS = ("none", "tanh", "quick")

# Which formula each of other libraries' names means. HF's "gelu_fast" is the tanh form, whatever this package's name.
ALIASES = {
    "none": "none", "tanh": "tanh", "quick": "quick",
    # Hugging Face ACT2FN
    "gelu": "none", "gelu_python": "none",
    "gelu_new": "tanh", "gelu_fast": "tanh", "gelu_accurate": "tanh", "gelu_pytorch_tanh": "tanh",
    "gelu_python_tanh": "tanh",
    "quick_gelu": "quick", "quickgelu": "quick",
}  # fmt: skip

TANH_CUBIC = 0.044715
QUICK_SLOPE = 1.702


def shown(form: str) -> str:
    """For people, to whom ``none`` alone says that there is no GELU."""
    return "none (exact)" if form == "none" else form


def resolve(name: str) -> str:
    """The form that another library's name means.

    Parameters
    ----------
    name : str
        ``"none"``, ``"tanh"``, ``"quick"``, or a Hugging Face activation name such as ``"gelu_new"``.

    Returns
    -------
    str
        ``"none"``, ``"tanh"`` or ``"quick"``.

    Raises
    ------
    ValueError
        If no formula goes by that name.
    """
    try:
        return ALIASES[name]
    except (KeyError, TypeError):
        raise ValueError(f"name: no GELU form is called {name!r}; known are {', '.join(sorted(ALIASES))}") from None


def reference(x: float, form: str) -> float:
    """GELU of one Python float, in float64, written so that the negative tail keeps its relative accuracy.

    Parameters
    ----------
    x : float
    form : {"none", "tanh", "quick"}

    Returns
    -------
    float
        Within 2,000 ULP of any normal result (the exponential's argument is rounded); meant for checking models.
    """
    if math.isnan(x):
        return x
    if math.isinf(x):
        return x if x > 0 else -0.0
    if form == "none":
        return 0.5 * x * math.erfc(-x * math.sqrt(0.5))
    if form == "tanh":
        y = 2 * math.sqrt(2 / math.pi) * x * (1 + TANH_CUBIC * x * x)
    elif form == "quick":
        y = QUICK_SLOPE * x
    else:
        raise ValueError(f"form: expected one of {FORMS}, got {form!r}")
    if y >= 0:
        return x / (1 + math.exp(-y))
    return x * math.exp(y) / (1 + math.exp(y)) if y > -745 else -0.0
