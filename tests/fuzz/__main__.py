"""``python -m tests.fuzz --count 1000 [--start 0] [--log FILE]``; with ``--seed N`` one graph, written out."""

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
from tests.fuzz.engine import examine
from tests.fuzz.graphs import random_model
from tests.fuzz.workers import fuzz

FINE = ("same", "refused", "ill-conditioned", "no reference", "slow build")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Random graphs against ONNX Runtime")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--log", type=Path, help="append one JSON line per graph; graphs that it holds are skipped")
    parser.add_argument("--contrib", action="store_true", help="with ONNX Runtime's own operators and open sizes too")
    parser.add_argument("--seed", type=int, help="examine one graph in this process and keep its model")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _one(arguments.seed, arguments.contrib)
    began = time.monotonic()
    seeds = range(arguments.start, arguments.start + arguments.count)
    if arguments.log is not None and arguments.log.exists():
        done = {json.loads(line)["seed"] for line in arguments.log.read_text().splitlines()}
        seeds = [seed for seed in seeds if seed not in done]
    outcomes: Counter[str] = Counter()
    for found in islice(fuzz(seeds, contrib=arguments.contrib), len(seeds)):
        outcomes[found.outcome] += 1
        if arguments.log is not None:
            with arguments.log.open("a") as stream:
                stream.write(found.to_json() + "\n")
        if found.outcome != "same":
            print(f"{found.seed}: {found.outcome} ({found.stage}) {found.message[:300]}", flush=True)
        if time.monotonic() - began > arguments.seconds:
            break
    print(f"{sum(outcomes.values())} graphs in {time.monotonic() - began:.0f} s: {dict(outcomes)}")
    return 0 if set(outcomes) <= set(FINE) else 1


def _one(seed: int, contrib: bool) -> int:
    model = random_model(seed, contrib)
    path = Path(f"fuzz-{seed}.onnx")
    onnx.save(model, path)
    print(onnx.printer.to_text(model.graph)[:6000])
    found = examine(model, seed, print, host_target())
    print(f"{path}: {found}")
    return 0 if found.outcome in FINE else 1


if __name__ == "__main__":
    sys.exit(main())
