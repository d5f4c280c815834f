"""``python -m research.fixed_costs prepare|time FOLDER MODEL…``: what ``tune`` takes where nothing is to be done.

``prepare`` tunes the models, ONNX files, for ``BUDGET`` into FOLDER. ``time`` runs the same commands again, and
``tune --help``, in turn, each in a process of its own from start to end, on an otherwise idle machine. Between the two
no source of this program may change: a run is only repeated by the program that made it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from autotune.tuning.tune import REPEATED

BUDGET = "15s"


def command(folder: Path, model: Path) -> list[str]:
    """The command that tunes ``model`` into ``folder``."""
    places = ["--out", str(folder / f"{model.stem}.tuned"), "--log", str(folder / f"{model.stem}.db")]
    return ["run", str(model.absolute()), "--budget", BUDGET, "--quiet", "--json", *places]


def seconds(arguments: list[str]) -> tuple[float, str]:
    """Seconds of a process that carries out a command of ``tune``, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "autotune", *arguments], capture_output=True, text=True, check=True)
    return time.perf_counter() - began, done.stdout


def main() -> None:
    """Tune, or print a line for every command."""
    parser = argparse.ArgumentParser(prog="python -m research.fixed_costs", description=__doc__)
    parser.add_argument("what", choices=("prepare", "time"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    commands = {model.stem: command(arguments.folder, model) for model in arguments.models}
    if arguments.what == "prepare":
        for asked in commands.values():
            seconds(asked)
        return
    taken: dict[str, list[float]] = {name: [] for name in ("--help", *commands)}
    for _ in range(arguments.rounds):
        taken["--help"].append(seconds(["--help"])[0])
        for name, asked in commands.items():
            spent_s, said = seconds(asked)
            if REPEATED not in said:
                raise SystemExit(f"the run of {name} was carried out again; prepare it anew")
            taken[name].append(spent_s)
    for name, times in taken.items():
        low, middle, high = statistics.quantiles(times, n=4)
        print(f"{name:12s} {middle:.2f} s (quartiles {low:.2f} to {high:.2f}, {len(times)} rounds)")


if __name__ == "__main__":
    main()
