"""Fixtures: every instruction set this CPU runs, and thread settings that are put back."""

import importlib
import importlib.util
import os
import sys
import types

import pytest

import gelu_fast as gf
from gelu_fast.cpu import ufuncs as cpu

ISAS = gf.cpu_info()["available"]
AT_START = gf.cpu_info()["isa"]


def pytest_configure(config):
    config.addinivalue_line("markers", "case(number, ...): proves cases of shared/cases/kernels.md")


@pytest.fixture(autouse=True, scope="module")
def environment():
    """Put back what a library changes: a cluster of distributed leaves OMP_NUM_THREADS=1 behind."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(params=ISAS)
def isa(request):
    """Run the test once with each instruction set; the one chosen at import comes back afterwards."""
    cpu._select_isa(request.param)
    yield request.param
    cpu._select_isa(AT_START)


@pytest.fixture
def threads():
    """A function that sets the thread count for this test."""
    before = gf.get_num_threads()
    yield gf.set_num_threads
    gf.set_num_threads(before)


@pytest.fixture
def timm_mlp():
    """timm's Mlp class, without timm's ``__init__``, which needs torchvision: PyPI's doesn't load beside torch+cpu."""
    spec = importlib.util.find_spec("timm")
    if spec is None:
        pytest.skip("needs timm: pip install --no-deps timm")
    (root,) = spec.submodule_search_locations
    before = set(sys.modules)
    for name, path in (("timm", root), ("timm.layers", f"{root}/layers")):
        package = types.ModuleType(name)
        package.__path__ = [path]
        sys.modules[name] = package
    yield importlib.import_module("timm.layers.mlp").Mlp
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "timm":
            del sys.modules[name]
