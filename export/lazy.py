"""Optional packages, loaded on first use, so that importing gelu_fast.export costs nothing but NumPy."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str, extra: str = "onnx") -> Any:
    """The module, or an ImportError that says how to get it.

    Parameters
    ----------
    module : str
        Dotted name, for example ``"onnx.helper"``.
    extra : str
        The extra of gelu-fast that installs it.

    Raises
    ------
    ImportError
        Naming the missing package and the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"gelu_fast.export needs {package}, which can't be imported ({error}): pip install 'gelu-fast[{extra}]'",
            name=package,
        ) from error
