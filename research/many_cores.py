"""Nine models on 2 to 16 threads next to other engines: ``python -m research.many_cores --minutes 5``.

Each cell of the table is a process with a time limit: ``tune run`` on so many threads, then ``tune bench`` against ONNX
Runtime and OpenVINO with its own settings, in turn. A cell that succeeded is not repeated: a run that was stopped goes
on with the next one. More threads than this process may use are left out. ``--budget`` gives every cell time to tune;
without it kernels are first guesses.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.cli.reply import table
from autotune.host.machine import read_host
from research.gpu.steps import Step, result, run_steps
from tests.models.catalog import MODELS, cached

FOLDER = Path("build/many_cores")
NINE = (
    *("squeezenet", "resnet50", "inception_v1", "inception_v2", "densenet121", "shufflenet"),
    *("alexnet", "zfnet512", "vgg19"),
)
"""The light models, those with few weights first."""

THREADS = (16, 4, 8, 2)
"""Thread counts, in the order in which they are run."""

PEERS = ("onnxruntime", "openvino-default")
ROUNDS = 5
CELL_S = 40.0
"""Seconds after which a cell is stopped, beyond its tuning."""


def cells(models: Sequence[str], threads: Sequence[int], budget_s: int, allowed: int) -> tuple[Step, ...]:
    """The cells that ``allowed`` CPUs can run, all models of one number of threads together."""
    return tuple(
        Step(
            f"{model}-{count}" + (f"-{budget_s}s" if budget_s else ""),
            CELL_S + budget_s,
            ("-m", "research.many_cores", "--cell", model, str(count), "--budget", str(budget_s)),
            "at least as fast as the better of both",
        )
        for count in threads
        if count <= allowed
        for model in models
    )


def cell(model: str, threads: int, budget_s: int) -> dict[str, Any]:
    """Tune and time ``model``; the milliseconds of every engine.

    Raises:
        subprocess.CalledProcessError: if tuning or timing fails.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = FOLDER / f"{model}-{threads}.tuned"
    effort = ["--budget", f"{budget_s}s"] if budget_s else ["--effort", "instant"]
    _tune("run", str(cached(model)), *effort, "--threads", str(threads), "--out", str(folder), *_LOG)
    told = _tune(
        "bench", str(folder), "--against", ",".join(PEERS), "--rounds", str(ROUNDS), "--model", str(cached(model))
    )
    return {
        "model": model,
        "threads": told["threads"],
        "ms": {engine["name"]: engine["p50_ms"] for engine in told["engines"]},
        "speedup": told["speedup"],
    }


_LOG = ("--log", str(FOLDER / "tuning.db"))


def _tune(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "autotune", *arguments, "--json", "--quiet"]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return answer


def rows(folder: Path, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Objects that successful cells printed."""
    done = [result(folder, step) for step in steps]
    return [json.loads(answer["output"].splitlines()[-1]) for answer in done if answer.get("code") == 0]


def lines(cells: Sequence[dict[str, Any]]) -> list[str]:
    """A table: a row for each cell."""
    engines = list(dict.fromkeys(name for row in cells for name in row["ms"]))
    head = ["model", "threads", *(f"{name} ms" for name in engines), *(f"over {name}" for name in PEERS)]
    return table(
        head,
        [
            [
                row["model"],
                str(row["threads"]),
                *(f"{row['ms'][name]:.3f}" if name in row["ms"] else "" for name in engines),
                *(f"{row['speedup'][name]:.2f}" if name in row["speedup"] else "" for name in PEERS),
            ]
            for row in sorted(cells, key=lambda row: (row["model"], row["threads"]))
        ],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=NINE, metavar="MODEL")
    parser.add_argument("--threads", nargs="+", type=int, default=THREADS)
    parser.add_argument("--budget", type=int, default=0, help="seconds of tuning for each cell")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="results of cells")
    parser.add_argument("--cell", nargs=2, metavar=("MODEL", "THREADS"), help="one cell, by itself")
    arguments = parser.parse_args()
    if arguments.cell:
        model, threads = arguments.cell
        print(json.dumps(cell(model, int(threads), arguments.budget)))
        return 0
    steps = cells(arguments.models, arguments.threads, arguments.budget, len(read_host().allowed))
    code = run_steps(arguments.folder, 60 * arguments.minutes, steps)
    print("\n".join(lines(rows(arguments.folder, steps))))
    return code


if __name__ == "__main__":
    sys.exit(main())
