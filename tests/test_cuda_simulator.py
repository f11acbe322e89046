"""The kernels in numba.cuda's simulator, in a process of its own (tests/cuda_simulated.py): values, layouts, `out`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda: pip install 'gelu-fast[cuda]'")

SCRIPT = Path(__file__).with_name("cuda_simulated.py")
CASES = ("values", "sixteen_bits", "fused", "bias_backward", "bias_backward_order", "gate_backward",
         "backward_of_16_bits", "layouts", "out", "refused", "front_door")  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_simulated(case):
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(SCRIPT.parent)}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT), case], capture_output=True, text=True, timeout=500, check=False,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "done"
