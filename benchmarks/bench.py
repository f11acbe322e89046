"""Speed against the peers; `make bench`. The same as ``gelu-fast bench``, whose options it takes."""

import sys

from gelu_fast.bench import main

if __name__ == "__main__":
    sys.exit(main())
