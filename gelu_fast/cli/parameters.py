"""Messages of the functions behind the commands, which name Python's parameters, by the options of the command line."""

from __future__ import annotations

import re

_MODEL, _OUTPUT, _WEIGHTS = "MODEL", "--output", "--weights"
# Where the option isn't called as the parameter is.
NAMES = {
    "export": {"path": _OUTPUT, "source": _WEIGHTS, "folder": "--page"},
    "verify": {"path_or_model": _MODEL, "reference": _WEIGHTS, "source": _WEIGHTS},
    "inspect": {"path_or_model": _MODEL},
    "rewrite": {"path_or_model": _MODEL, "path": _OUTPUT},
    "quantize": {"path": _MODEL, "path_or_model": _MODEL, "out": _OUTPUT, "keep_io_types": "--float16-io"},
}
_SAME = frozenset({
    "approximate", "batches", "calibration", "dims", "dtype", "external_data", "form", "hidden_features", "in_features",
    "method", "opset", "output", "seed", "target", "untie",
})  # fmt: skip
_PARAMETER = re.compile(r"(\[Errno \d+\] )?(\w+): ")


def in_options(command: str | None, message: str) -> str:
    """The message with an option in place of the parameter that begins it.

    Parameters
    ----------
    command : str, optional
        Of `gelu-fast`.
    message : str
    """
    found = _PARAMETER.match(message)
    if command not in NAMES or found is None:
        return message
    name = found[2]
    option = NAMES[command].get(name, f"--{name.replace('_', '-')}" if name in _SAME else None)
    return message if option is None else f"{option}: {message[found.end():]}"
