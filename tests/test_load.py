"""Load and faults, each in a process of its own: many threads and processes, forks, no memory, signals, huge arrays.

GELU_FAST_LONG=1 runs longer, and what needs 10 GB.
"""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

LONG = os.environ.get("GELU_FAST_LONG") == "1"
SCRIPTS = Path(__file__).parent / "load"
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and limits the address space: Linux only")


def start(name, *arguments):
    return subprocess.Popen([sys.executable, "-W", "error", SCRIPTS / name, *map(str, arguments)], cwd="/", text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip


def finish(process, seconds):
    """What it says after "ok"; killed if it takes longer."""
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        pytest.fail(f"no end after {seconds} s: {text}")
    assert process.returncode == 0, text
    assert text.startswith("ok"), text
    return text.split()[1:]


def test_64_threads():
    finish(start("threads.py", 64, 10 if LONG else 2), 120)


def test_8_processes():
    processes = [start("threads.py", 3, 10 if LONG else 1) for _ in range(8)]
    try:
        for process in processes:
            finish(process, 120)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_fork_in_the_middle_of_a_call():
    finish(start("fork.py", 300 if LONG else 15), 300 if LONG else 120)


@linux
def test_no_memory():
    finish(start("memory.py"), 120)


@linux
def test_no_memory_for_threads():
    finish(start("starved.py"), 60)


def test_interrupts():
    finish(start("interrupt.py"), 120)


@linux
def test_nothing_is_lost():
    """References, allocated blocks and resident memory, over many calls."""
    finish(start("steady.py", 1_000_000 if LONG else 100_000), 600 if LONG else 120)


def free_gigabytes():
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    here = int(found[1]) * 1024
    return (here if limit == resource.RLIM_INFINITY else min(here, limit)) / 1e9


@linux
def test_more_than_2_31_elements():
    if not LONG:
        pytest.skip("takes half a minute and 9 GB: runs with GELU_FAST_LONG=1")
    if free_gigabytes() < 10:
        pytest.skip(f"needs 10 GB of free memory, here are {free_gigabytes():.1f}")
    finish(start("huge.py"), 500)
