"""Large results lie in huge pages, where the kernel has them."""

from pathlib import Path

import pytest
import torch

import gelu_fast.torch as gt

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def flags(address):
    """VmFlags of the mapping that holds an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name = line.split()[0]
        if not name.endswith(":"):
            low, high = (int(part, 16) for part in name.split("-"))
            inside = low <= address < high
        elif inside and name == "VmFlags:":
            return line.split()[1:]
    raise AssertionError(f"no mapping at {address:#x}")


@pytest.mark.skipif(not SETTING.is_file(), reason="needs Linux with transparent huge pages")
def test_large_results_ask_for_huge_pages():
    dy = torch.ones(64, 1 << 17)
    x = torch.randn(64, 1 << 17, requires_grad=True)
    y = gt.gelu(x)
    y.backward(dy)
    for result in (y, x.grad, gt.geglu(dy), gt.bias_gelu(dy, dy[0])):
        assert "hg" in flags(result.data_ptr() + result.nbytes // 2)
    assert "hg" not in flags(gt.gelu(torch.ones(1000)).data_ptr())


def test_values_do_not_depend_on_the_pages():
    x = torch.randn(3, 700_001)
    assert torch.equal(gt.gelu(x)[1], gt.gelu(x[1].clone()))
    assert torch.equal(gt.gelu(x[:, ::2]), gt.gelu(x[:, ::2].contiguous()))
