"""No memory for threads: a first large call under RLIMIT_AS is right with whatever threads the system gives."""

import re
import resource
from pathlib import Path

import numpy as np

import gelu_fast as gf

x = np.linspace(-9, 9, 1 << 22, dtype="f4")
y = np.empty_like(x)
gf.set_num_threads(64)
size = int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20), resource.RLIM_INFINITY))
gf.gelu(x, out=y)
started = len(list(Path("/proc/self/task").iterdir()))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
gf.set_num_threads(1)
assert np.array_equal(y, gf.gelu(x))
print("ok", started)
