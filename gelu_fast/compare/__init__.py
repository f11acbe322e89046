"""GELU beside the other activations: what they are, what they cost, how they train.

``gelu-fast compare`` is its command line. Importing this package imports NumPy alone; Matplotlib (extra ``plot``) and
scikit-learn (extra ``compare``) load when they are used.

| file | what |
|---|---|
| ``activations.py`` | the eight functions and their derivatives, over arrays |
| ``reference.py`` | the same over Python floats, written apart; what counts as a right answer |
| ``properties.py`` | range, smoothness, monotony, gradients: all computed |
| ``cost.py`` | time in relation to ReLU, answers checked first |
| ``picture.py``, ``styles.py`` | functions and derivatives; one style per activation |
| ``network.py`` | a small classifier in NumPy |
| ``training.py``, ``curves.py`` | training it with each activation; the picture of that |
| ``table.py`` | rows for a terminal |
"""

from __future__ import annotations

from .activations import ACTIVATIONS, Activation

__all__ = ["ACTIVATIONS", "Activation"]
