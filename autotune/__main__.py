"""``python -m autotune`` is ``tune``: for where another package has put a command of that name first (ray does)."""

import sys

from autotune.host.lean_loading import leave_out_unused
from autotune.host.process_limits import collect_rarely


def main() -> int:
    """The command line. Ctrl-C while it is being loaded is no traceback either."""
    collect_rarely()
    leave_out_unused(sys.argv[1:])
    try:
        from autotune.cli.main import main as run  # takes some tenths of a second, in which Ctrl-C may come
    except KeyboardInterrupt:
        sys.stderr.write("tune: interrupted\n")
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
