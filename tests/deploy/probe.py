"""What each runtime reads, has kernels for and fuses, found by running: prints one JSON document.

    python probe.py            every environment that setup.sh made, and this Python's onnxruntime
    python probe.py newest     this Python's onnxruntime alone
"""

import json
import sys
import tempfile
from pathlib import Path

import facts
import probe_models
import runtimes


def main(*names):
    """Print the facts of the named runtimes, by default of all that are there."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="gelu-fast-probe-") as temporary:
        folder = Path(temporary) / "cases"
        folder.mkdir()
        probe_models.write(folder)
        for name in names or runtimes.available():
            optimised = Path(temporary) / name
            optimised.mkdir()
            report = runtimes.run(name, folder, optimised)
            found[name] = facts.summarise(folder, report)
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
