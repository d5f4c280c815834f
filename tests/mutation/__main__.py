"""``python -m tests.mutation --count 700``: how many wrong kernels are rejected; exit code 1 below 99 %."""

from __future__ import annotations

import argparse
import sys

from tests.mutation.trial import MODELS, QUANTISED, Tally, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Wrong kernels against the check")
    parser.add_argument("--count", type=int, default=700)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="+", default=[*MODELS, *QUANTISED])
    arguments = parser.parse_args()
    tally = Tally()
    for tally in run(arguments.count, arguments.models, arguments.seed):
        print(tally.lines()[0], file=sys.stderr)
    print("\n".join(tally.lines()))
    return 0 if tally.share >= 0.99 else 1


if __name__ == "__main__":
    sys.exit(main())
