"""``python -m gelu_fast.bench``."""

import sys

from gelu_fast.bench import main

if __name__ == "__main__":
    sys.exit(main())
