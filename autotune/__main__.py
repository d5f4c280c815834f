"""``python -m autotune`` is ``tune``: for where another package has put a command of that name first (ray does)."""

import sys

from autotune.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
