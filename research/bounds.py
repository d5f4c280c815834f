"""``python -m research.bounds LOG…``: whether measured kernels keep within their bounds.

Of every measured config of a template that has the feature ``cycles``, for this machine: the bound of its products by
that feature and the measured peak, over its time. Above 1 the bound is wrong, or the peak was measured too low: a
config whose products begin as often as the core allows is bound by the measured peak alone.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.host.machine import read_host
from autotune.host.roofline import Roofline, measure_roofline
from schedules.lower import claim, load_program, operations
from schedules.target import Target
from schedules.templates.common.ranking import CYCLES
from tuning_logs.sql_store import open_log

NOISE = 1.03
"""Medians of a kernel repeat within 3 % (docs/measuring.md)."""


@dataclass(frozen=True)
class Row:
    """A measured config.

    Attributes:
        template: that it is of.
        threads: that it ran on.
        cycles: over those of its task's multiply-adds at the peak.
        share: of the bound, in its time.
    """

    template: str
    threads: int
    cycles: float
    share: float


def rows(path: Path, rooflines: dict[Target, Roofline]) -> Iterator[Row]:
    """The measured configs of a log, which is left as it is."""
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(shutil.copy(path, folder))
        programs, targets = dict(log.workloads()), log.targets()
        for key in log.counts():
            if key.task not in programs:
                continue
            target, func = targets[key.target], load_program(programs[key.task])
            space = claim(func, target).space
            if space.identity != key.space or CYCLES not in space.feature_names:
                continue
            at, flop = space.feature_names.index(CYCLES), operations(func)
            if target not in rooflines:
                rooflines[target] = measure_roofline(target)
            least_s = flop / rooflines[target].peak([str(param.ty.dtype) for param in func.params]) / 1e9
            for record in log.records(key):
                if record.measurement.ok and space.contains(record.config):
                    cycles = float(space.features([record.config])[0, at])
                    yield Row(space.name, target.threads, cycles, cycles * least_s / record.measurement.latency_s)
        log.close()


def main() -> None:
    """Print a row per template and number of threads."""
    parser = argparse.ArgumentParser(prog="python -m research.bounds", description="Measured kernels and bounds")
    parser.add_argument("logs", nargs="+", type=Path)
    by_kernel: dict[tuple[str, int], list[Row]] = defaultdict(list)
    rooflines: dict[Target, Roofline] = {}
    for path in parser.parse_args().logs:
        for row in rows(path, rooflines):
            by_kernel[row.template, row.threads].append(row)
    print(f"{read_host().model}\n| template | threads | configs | with cycles > 1 | most of the bound | > {NOISE:g} |")
    for (template, threads), kernel_rows in sorted(by_kernel.items()):
        limited = [row.share for row in kernel_rows if row.cycles > 1]
        shares = [row.share for row in kernel_rows]
        print(
            f"| {template} | {threads} | {len(kernel_rows)} | {len(limited)}, most {max(limited, default=0):.2f} | "
            f"{max(shares):.2f}, median {statistics.median(shares):.2f} | {sum(share > NOISE for share in shares)} |"
        )


if __name__ == "__main__":
    main()
