"""``python -m tests.mutation --count 700``: how many wrong kernels are rejected; exit code 1 below 99 %."""

from __future__ import annotations

import argparse
import sys

from tests.mutation import text_trial
from tests.mutation.trial import MODELS, QUANTISED, Tally, run

ENOUGH = 0.99
"""Share of wrong kernels that must be rejected."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Wrong kernels against the check")
    parser.add_argument("--count", type=int, default=700)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", nargs="+", default=[*MODELS, *QUANTISED])
    parser.add_argument("--code", nargs="+", choices=("compiled", "assembled"), default=["compiled", "assembled"])
    arguments = parser.parse_args()
    trials = {
        "compiled": lambda: run(arguments.count, arguments.models, arguments.seed),
        "assembled": lambda: text_trial.run(arguments.count, seed=arguments.seed),
    }
    shares = []
    for code in arguments.code:
        tally = Tally()
        told = 0
        for tally in trials[code]():
            print(f"{code}: {tally.lines()[0]}", *tally.missed[told:], sep="\n", file=sys.stderr)
            told = len(tally.missed)
        print("\n".join([f"{code} kernels", *tally.lines()]))
        shares.append(tally.share)
    return 0 if min(shares) >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
