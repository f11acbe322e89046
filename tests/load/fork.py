"""python fork.py TIMES: fork while other threads are in the middle of parallel calls; children compute, and end."""

import os
import signal
import sys
import threading
import time

import numpy as np

import gelu_fast as gf

gf.set_num_threads(4)
x = np.linspace(-9, 9, 1 << 20, dtype="f4")
grid = x.reshape(1024, 1024)[:, :1000]
bias = np.zeros(1000, "f4")
expected, slope = gf.gelu(x), gf.bias_gelu_backward(grid, grid, bias)
stop, wrong, rounds = threading.Event(), [], [0, 0, 0]


def work(k):
    y = np.empty_like(x)
    while not stop.is_set():
        if k:
            gf.gelu(x, out=y)
            if not np.array_equal(y, expected):
                wrong.append("gelu in the parent")
        elif not all(map(np.array_equal, gf.bias_gelu_backward(grid, grid, bias), slope)):
            wrong.append("bias_gelu_backward in the parent")
        rounds[k] += 1


def child():
    signal.alarm(20)  # a child that hangs is killed, and seen
    for _ in range(3):
        if not np.array_equal(gf.gelu(x), expected):
            return 3
    if not all(map(np.array_equal, gf.bias_gelu_backward(grid, grid, bias), slope)):
        return 4
    return 0 if gf.cpu_info()["usable_threads"] == 1 else 5


threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
for t in threads:
    t.start()
while min(rounds) < 1:
    time.sleep(0.001)
codes = set()
for n in range(int(sys.argv[1])):
    time.sleep(n % 7 * 0.0003)
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = child()
        finally:
            os._exit(code)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
before = list(rounds)
deadline = time.monotonic() + 20
while any(b == r for b, r in zip(before, rounds, strict=True)) and time.monotonic() < deadline:
    time.sleep(0.001)
assert all(b < r for b, r in zip(before, rounds, strict=True)), "a thread of the parent stands still"
stop.set()
for t in threads:
    t.join()
assert codes == {0}, codes
assert not wrong, wrong[:3]
assert gf.cpu_info()["usable_threads"] > 1 or os.cpu_count() == 1 or os.environ.get("OMP_NUM_THREADS") == "1"
print("ok")
