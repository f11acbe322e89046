"""SIGINT: a long call ends as it began, and the interrupt comes at once after; hundreds in short calls harm nothing."""

import os
import random
import signal
import threading
import time

import numpy as np

import gelu_fast as gf

# One long call on one thread, the slowest kind.
from gelu_fast.cpu import ufuncs as cpu

chosen = cpu.selected_isa()
cpu._select_isa("baseline")
gf.set_num_threads(1)
part = (np.random.default_rng(0).standard_normal(1 << 20) * 9).astype("f2")
expected = gf.gelu_grad(part)
begin = time.monotonic()
gf.gelu_grad(part)
repeats = max(8, int(0.6 / (time.monotonic() - begin)))
x = np.tile(part, min(repeats, 256))
end_mark = 7.0
out = np.full(x.size, end_mark, np.float16)
assert expected[-1] != end_mark
times = {}


def watch():
    """When the last element came."""
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    while out[-1] == end_mark:
        time.sleep(0.001)
    times["end"] = time.monotonic()


watcher = threading.Thread(target=watch)
watcher.start()
interrupted = False
begin = time.monotonic()
try:
    gf.gelu_grad(x, out=out)
    while time.monotonic() < begin + 10:  # where the call was over before the signal came
        pass
except KeyboardInterrupt:
    times["interrupt"] = time.monotonic()
    interrupted = True
watcher.join()
assert interrupted
assert times["interrupt"] - max(times["end"], begin + 0.1) < 0.5, times
assert all(np.array_equal(piece, expected) for piece in out.reshape(-1, part.size))
cpu._select_isa(chosen)

# Many short ones, on several threads. A signal in the middle of a statement may take its result, nothing else.
gf.set_num_threads(4)
x = np.linspace(-9, 9, 1 << 20, dtype="f4")
grid = x.reshape(1024, 1024)[:, :1000]
expected, y = gf.gelu(x), np.empty_like(x)
slope = gf.bias_gelu_backward(grid, grid, grid[0])
stop, hits = threading.Event(), 0


def shoot():
    for k in range(200):
        if stop.wait(0.0005 + 0.002 * random.Random(k).random()):
            break
        os.kill(os.getpid(), signal.SIGINT)
    stop.set()


shooter = threading.Thread(target=shoot)
shooter.start()
while True:
    try:
        if stop.is_set():
            break
        gf.gelu(x, out=y)
        assert np.array_equal(y, expected)
        assert all(map(np.array_equal, gf.bias_gelu_backward(grid, grid, grid[0]), slope))
    except KeyboardInterrupt:
        hits += 1
for _ in range(2):  # the last may still be on its way
    try:
        shooter.join()
        time.sleep(0.01)
    except KeyboardInterrupt:
        hits += 1
assert hits > 20, hits
gf.gelu(x, out=y)
assert np.array_equal(y, expected)
print("ok", hits)
