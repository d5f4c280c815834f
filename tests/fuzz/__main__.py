"""``python -m tests.fuzz --count 1000 [--start 0] [--family …] [--log FILE]``; with ``--seed N`` one graph.

Models that fail are written to build/fuzz.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import onnx

from autotune.host.machine import host_target
from autotune.host.worker_pool import ForkServerProcess
from tests.fuzz.engine import Found, examine
from tests.fuzz.workers import FAMILIES, fuzz

FINE = ("same", "refused", "ill-conditioned", "disputed", "no reference", "no graph", "slow build")
DEFAULT = [name for name in FAMILIES if name != "contrib"]
FOLDER = Path("build") / "fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Random graphs against ONNX Runtime")
    parser.add_argument("--count", type=int, default=100, help="graphs of every family")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop each family after this time")
    parser.add_argument("--log", type=Path, help="append one JSON line per graph; graphs that it holds are skipped")
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=DEFAULT)
    parser.add_argument("--seed", type=int, help="examine one graph of every family in this process and keep its model")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return max(_one(arguments.seed, family) for family in arguments.family)
    with ForkServerProcess() as server:
        return max(_many(server, arguments, family) for family in arguments.family)


def _many(server: ForkServerProcess, arguments: argparse.Namespace, family: str) -> int:
    began = time.monotonic()
    seeds: list[int] = [*range(arguments.start, arguments.start + arguments.count)]
    if arguments.log is not None and arguments.log.exists():
        lines = map(json.loads, arguments.log.read_text().splitlines())
        done = {line["seed"] for line in lines if line["family"] == family}
        seeds = [seed for seed in seeds if seed not in done]
    outcomes: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    for found in islice(fuzz(server, seeds, family=family), len(seeds)):
        outcomes[found.outcome] += 1
        kernels.update(assembled=found.assembled, compiled=found.compiled)
        if arguments.log is not None:
            with arguments.log.open("a") as stream:
                stream.write(json.dumps({"family": family, **found.to_data()}) + "\n")
        if found.outcome != "same":
            told = f"{found.message[:300]} {' '.join(found.changes)}"
            print(f"{family} {found.seed}: {found.outcome} ({found.stage}) {told}", flush=True)
        if found.outcome not in FINE:
            _keep(found, family)
        if time.monotonic() - began > arguments.seconds:
            break
    taken = time.monotonic() - began
    print(f"{family}: {outcomes.total()} graphs in {taken:.0f} s: {dict(outcomes)}; kernels: {dict(kernels)}")
    return 0 if set(outcomes) <= set(FINE) else 1


def _keep(found: Found, family: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    onnx.save(FAMILIES[family](found.seed).model, FOLDER / f"fuzz-{family}-{found.seed}.onnx")


def _one(seed: int, family: str) -> int:
    sample = FAMILIES[family](seed)
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"fuzz-{family}-{seed}.onnx"
    onnx.save(sample.model, path)
    print(onnx.printer.to_text(sample.model)[:6000])
    found = examine(sample, seed, print, host_target())
    print(f"{path}: {found}")
    return 0 if found.outcome in FINE else 1


if __name__ == "__main__":
    sys.exit(main())
