"""Sentences on what was tuned, what limits the slowest kernels and what would help. The advice is heuristic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autotune.host.roofline import Roofline
from autotune.report.decisions import decisions
from autotune.report.facts import Facts, Row

SLOWEST = 5
"""Kernels that are explained, and have a number in the plots."""
NEAR = 0.85
"""Share of its roofline bound from which a kernel is called as fast as the machine allows. Heuristic: timings on a
shared machine differ by a tenth."""
FEW_TRIALS = 32
"""Trials below which more budget is advised. Heuristic: a search of our spaces mostly ends within twice as many."""
LEAST_SHARE = 0.005
"""Share of the kernels' time from which a template is named. Heuristic."""
SHORT_S = 5e-6
"""Seconds below which a kernel is called too short. Heuristic: starting threads and a barrier take that long."""


@dataclass(frozen=True)
class Explained:
    """One kernel in words.

    Attributes:
        limit: what it is limited by, and how near it is to that.
        advice: what would help.
    """

    row: Row
    limit: str
    advice: str

    def to_data(self) -> dict[str, Any]:
        """As in ``--explain --json``."""
        return {
            "key": self.row.task.key,
            "name": self.row.task.name,
            "share": self.row.share,
            "latency_us": None if self.row.latency_s is None else 1e6 * self.row.latency_s,
            "roofline_share": self.row.bound_share,
            "limit": self.limit,
            "advice": self.advice,
        }


def explain(facts: Facts) -> list[Explained]:
    """The ``SLOWEST`` kernels that take most of an inference."""
    return [
        Explained(row, _limit(row, facts.roofline), _advice(row))
        for row in facts.rows[:SLOWEST]
        if row.latency_s is not None
    ]


def summary(facts: Facts) -> list[str]:
    """Return a summary of the tuning and its gains, a sentence each."""
    tuned = sum(row.trials > 0 for row in facts.rows)
    templates = [(name, share) for name, share in facts.template_shares.items() if share >= LEAST_SHARE][:3]
    spent = (
        f"one inference runs them for {1e3 * facts.kernels_s:.3f} ms, most of it in "
        + ", ".join(f"{name} ({share:.0%})" for name, share in templates)
        if facts.kernels_s > 0
        else "none was measured, so nothing is known of their times"
    )
    sentences = [f"{len(facts.rows)} kernels, {tuned} of them tuned in {facts.trials} trials; {spent}"]
    sentences += [
        f"{decision.name}: {1e3 * decision.without_s:.3f} ms with {decision.without}, "
        f"{1e3 * decision.with_s:.3f} ms as it is, ×{decision.without_s / decision.with_s:.2f}"
        for decision in decisions(facts)
        if decision.with_s > 0
    ]
    if not facts.runs:
        sentences.append("the artifact was built from a log alone: how it was tuned is not recorded in it")
    return sentences


def explain_lines(facts: Facts) -> list[str]:
    """Return a summary, the limits of the slowest kernels and advice, in words."""
    lines = [f"{sentence}." for sentence in summary(facts)]
    for rank, bottleneck in enumerate(explain(facts), start=1):
        row = bottleneck.row
        took = f"{1e6 * (row.latency_s or 0.0):.1f} µs, {row.share:.0%} of the kernels' time"
        lines += [
            f"{rank}. {row.task.name} ×{row.task.weight}: {took}",
            f"   limited by {bottleneck.limit}",
            f"   {bottleneck.advice}",
        ]
    return lines


def _limit(row: Row, roofline: Roofline | None) -> str:
    if roofline is None or row.latency_s is None:
        return "not known: the artifact has no recorded roofline of its machine; 'tune run' records it"
    moved_gb_s = row.task.bytes / row.latency_s / 1e9
    near = row.task.bytes <= roofline.l2_bytes
    roof_gb_s = roofline.l2_gb_s if near else roofline.memory_gb_s
    if row.memory_bound:
        where = "the L2 caches" if near else "memory"
        rate = f"{where}: {row.task.bytes / 1e6:.2f} MB at {moved_gb_s:.0f} of {roof_gb_s:.0f} GB/s"
        beyond = "more than was measured: its data lay in a nearer cache"
        return f"{rate}, {beyond if row.bound_share is None else f'{row.bound_share:.0%} of its bound'}"
    counted = f", {row.algorithm} needing fewer operations" if row.algorithm.startswith("Winograd") else ""
    rate = f"arithmetic: {row.gflops:.0f} of {roofline.peak(row.task.operands):.0f} GFLOPS{counted}"
    if row.bound_share is None:
        return f"{rate}, more than was measured of this machine, which was busy then: its bound is not known"
    return (
        f"{rate}, {row.bound_share:.0%} of its bound; "
        f"its bytes alone would take {100 * moved_gb_s / roof_gb_s:.0f}% of the time"
    )


def _advice(row: Row) -> str:
    share = row.bound_share
    if not row.tunable:
        return f"no template offers a choice for it; one for {row.task.op} would help"
    if share is not None and share >= NEAR:
        fewer = "fewer bytes (fusion with its neighbours, a shorter type)" if row.memory_bound else "fewer operations"
        return f"it is as fast as this machine allows; only {fewer} would help"
    if row.failed * 2 > max(row.trials, 1):
        return f"{row.failed} of {row.trials} trials failed: 'tune log show {row.task.key}' says why"
    if row.latency_s is not None and row.latency_s < SHORT_S:
        return "it is too short to fill the threads: fusion, or running it beside another kernel, would help"
    if 0 < row.trials < FEW_TRIALS:
        return f"only {row.trials} configs were tried: more budget is likely to help"
    if row.memory_bound:
        return "its data does not arrive as fast as it could: other tiles, or fusion with the kernel that writes it"
    return "many configs were tried: another algorithm or template would help more than time"
