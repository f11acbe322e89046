"""Modules; their state is that of the torch modules they stand for."""

from __future__ import annotations

from typing import Any

import torch

from ..checks import form_number
from .functions import gelu
from .fused import bias_gelu, geglu


class GELU(torch.nn.Module):
    """`gelu` as a module, in place of ``torch.nn.GELU``; it has no parameters.

    Parameters
    ----------
    approximate : {"none", "tanh", "quick"}, optional

    Raises
    ------
    ValueError
        If `approximate` is unknown.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        form_number(approximate)
        self.approximate = approximate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`gelu` of `x`."""
        return gelu(x, self.approximate)

    def extra_repr(self) -> str:
        """As ``torch.nn.GELU`` prints it."""
        return f"approximate={self.approximate!r}"


class GEGLU(torch.nn.Module):
    """`geglu` as a module.

    Parameters
    ----------
    approximate : {"none", "tanh", "quick"}, optional
    gate : {"second", "first"}, optional

    Raises
    ------
    ValueError
        If one of them is unknown.
    """

    def __init__(self, approximate: str = "none", *, gate: str = "second") -> None:
        super().__init__()
        form_number(approximate)
        if gate not in ("second", "first"):
            raise ValueError(f"gate: expected 'second' or 'first', got {gate!r}")
        self.approximate, self.gate = approximate, gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`geglu` of `x`, shape (..., 2n) to (..., n)."""
        return geglu(x, self.approximate, gate=self.gate)

    def extra_repr(self) -> str:
        """The parameters."""
        return f"approximate={self.approximate!r}, gate={self.gate!r}"


class BiasGELU(torch.nn.Module):
    """`bias_gelu` with a bias to be learnt, which is 0 at first.

    Parameters
    ----------
    features : int
    approximate : {"none", "tanh", "quick"}, optional
    device, dtype
        Of the bias, as for any module.

    Raises
    ------
    ValueError
        If `approximate` is unknown.
    """

    def __init__(self, features: int, approximate: str = "none", *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        form_number(approximate)
        self.approximate = approximate
        self.bias = torch.nn.Parameter(torch.zeros(features, device=device, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`bias_gelu` of `x`, shape (..., features)."""
        return bias_gelu(x, self.bias, self.approximate)

    def extra_repr(self) -> str:
        """The parameters."""
        return f"{len(self.bias)}, approximate={self.approximate!r}"


class FeedForwardBlock(torch.nn.Module):
    """Linear → GELU → Linear; the state's names are ``fc1.weight``, ``fc1.bias``, ``fc2.weight``, ``fc2.bias``.

    Parameters
    ----------
    input_dim, hidden_dim : int
    output_dim : int, optional
        `input_dim` unless given.
    approximate : {"none", "tanh", "quick"}, optional
    bias : bool, optional
    device, dtype
        Of the parameters.

    Raises
    ------
    ValueError
        If `approximate` is unknown.
    """

    def __init__(
        self, input_dim: int, hidden_dim: int, output_dim: int | None = None, approximate: str = "none", *,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        made: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.fc1 = torch.nn.Linear(input_dim, hidden_dim, **made)
        self.act = GELU(approximate)
        self.fc2 = torch.nn.Linear(hidden_dim, input_dim if output_dim is None else output_dim, **made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block of `x`, shape (..., input_dim)."""
        result: torch.Tensor = self.fc2(self.act(self.fc1(x)))
        return result
