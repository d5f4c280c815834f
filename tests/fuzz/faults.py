"""``python -m tests.fuzz.faults --count 2000``: which faults of importers do the fuzzed graphs show?

A fault is a wrong rewrite, as importers and simplifiers were reported to make. It is found by the first graph whose
rewritten model differs from the original in ONNX Runtime, by more than the fuzz allows: whatever the rest of the
importer makes of the rewritten model, the fuzz reports that graph. One line per fault: the number of graphs to which it
applies, and the first that shows it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from onnx import ModelProto

from autotune.importer.kernel_passes import interface
from autotune.validation.verify import random_inputs
from tests.fuzz.engine import Sample, difference, reference
from tests.fuzz.grower import NoFitError
from tests.fuzz.workers import FAMILIES
from tests.fuzz.wrong_rewrites import FAULTS


def samples(families: Sequence[str], count: int, start: int) -> Iterator[tuple[str, Sample]]:
    """``count`` graphs of the families in turn, each with its name."""
    for number in range(count):
        family = families[number % len(families)]
        seed = start + number // len(families)
        try:
            yield f"{family} {seed}", FAMILIES[family](seed)
        except NoFitError:
            yield f"{family} {seed}", Sample(ModelProto())


def shows(wrong: ModelProto, feed: dict[str, Any], theirs: Sequence[Any]) -> bool:
    """Whether the fuzz would report a graph whose import makes ``wrong`` of it."""
    try:
        ours = reference(wrong, feed)
    except Exception:  # refused, or a crash: either is reported
        return True
    return len(ours) != len(theirs) or bool(difference(ours, theirs))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.faults", description="Which faults the fuzz finds")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=["mutated", "random"])
    arguments = parser.parse_args()
    applies: Counter[str] = Counter()
    found: dict[str, str] = {}
    examined = 0
    for name, sample in samples(arguments.family, arguments.count, arguments.start):
        try:
            feed = sample.feed or dict(random_inputs(interface(sample.model)[0], int(name.split()[1])))
            theirs = reference(sample.model, feed)
        except Exception:  # no graph, or none that ONNX Runtime runs: the fuzz examines none either
            continue
        examined += 1
        for fault, rewrite in FAULTS.items():
            if fault in found:
                continue
            wrong = ModelProto()
            wrong.CopyFrom(sample.model)
            if not rewrite(wrong):
                continue
            applies[fault] += 1
            if shows(wrong, feed, theirs):
                found[fault] = f"{name} ({examined} examined): {' '.join(sample.changes)}"
                print(f"{fault}: {found[fault]}", file=sys.stderr, flush=True)
        if len(found) == len(FAULTS):
            break
    print(f"{len(found)} of {len(FAULTS)} faults found in {examined} graphs")
    for fault in FAULTS:
        print(f"{fault} | {applies[fault]} | {found.get(fault, 'not found')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
