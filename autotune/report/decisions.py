"""Gains of the tuner's decisions: the kernels' time with and without each, from the history of an artifact.

Notation: t = seconds of tuning, all runs of the artifact end to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.report.facts import Facts
from search.allocators.allocation import SLOT

FIRST_SLOT = 2
"""Trials of a task's first slot, where slots are dealt in turn: as the allocators do; the others have ``SLOT``."""

Curve = list[tuple[float, float]]
"""(t, seconds of all kernels of one inference), at every change."""

DealtSlot = tuple[float, str, Sequence[float | None]]
"""(t of its end, task, latencies of its trials; None for a failed one)."""


@dataclass(frozen=True)
class Decision:
    """The time of the kernels of one inference with a decision and without it.

    Attributes:
        name: the decision.
        without: in words, what would be there instead.
        with_s, without_s: seconds of all kernels with the decision and without it.
    """

    name: str
    without: str
    with_s: float
    without_s: float


def decisions(facts: Facts) -> list[Decision]:
    """Return the gain of every recorded decision."""
    if not facts.runs or facts.kernels_s <= 0:
        return []
    last = {task.task: task for run in facts.runs for task in run.tasks}

    def decision(name: str, without: str, instead: Mapping[str, float | None]) -> Decision:
        total_s = sum(row.task.weight * (instead.get(row.task.key) or row.latency_s or 0.0) for row in facts.rows)
        return Decision(name, without, facts.kernels_s, total_s)

    untuned = {key: task.untuned_s for key, task in last.items()}
    first = {task.task: task.first_s for task in facts.runs[0].tasks}
    gains = [
        decision("Templates, layouts and search", "untuned kernels", untuned),
        decision("Search", "the first guess of every template", first),
    ]
    if any(len(task.algorithms) > 1 for task in last.values()):
        direct = {key: task.algorithms.get("direct") for key, task in last.items()}
        gains.append(decision("Algorithm", "direct convolution everywhere", direct))
    real, in_turn = curve(facts), curve_in_turn(facts)
    if len(real) > 1:
        half_s = real[-1][0] / 2
        without = f"slots dealt in turn, after {half_s:.0f} s (estimate)"
        gains.append(Decision("Allocation", without, value_at(real, half_s), value_at(in_turn, half_s)))
    run = facts.runs[-1]
    if run.lanes and run.one_lane_s is not None:
        gains.append(Decision("Placement", "one lane for all", max(end for *_, end in run.lanes), run.one_lane_s))
    return gains


def curve(facts: Facts) -> Curve:
    """The kernels of one inference over the time of tuning; a task without a valid config counts untuned."""
    return _curve(facts, _slots(facts))


def curve_in_turn(facts: Facts) -> Curve:
    """The same trials at the same cost, but with slots dealt to the tasks in turn: an estimate.

    A task's trials come in the order in which they were tried. A task without further trials is passed over, so the
    estimate is too good where more trials of that task would have brought nothing.
    """
    return _curve(facts, _slots_in_turn(facts))


def _curve(facts: Facts, slots: Iterable[DealtSlot]) -> Curve:
    weights = {row.task.key: row.task.weight for row in facts.rows if row.tunable}
    fixed_s = sum(row.task.weight * (row.latency_s or 0.0) for row in facts.rows if not row.tunable)
    best: dict[str, float] = {}
    for task in facts.runs[0].tasks if facts.runs else ():
        known = task.before_s if task.before_s is not None else task.untuned_s
        if known is not None:
            best[task.task] = known

    def total_s() -> float:
        return fixed_s + sum(weights.get(key, 1) * latency for key, latency in best.items())

    points: Curve = [(0.0, total_s())]
    for ended_s, key, latencies in slots:
        valid = [latency for latency in latencies if latency is not None]
        if valid:
            best[key] = min([*valid, best.get(key, valid[0])])
        points.append((ended_s, total_s()))
    return points


def _slots(facts: Facts) -> Iterator[DealtSlot]:
    """The slots as they were dealt."""
    offset = 0.0
    for run in facts.runs:
        for slot in run.slots:
            yield offset + slot.ended_s, slot.task, slot.latencies_s
        offset += run.slots[-1].ended_s if run.slots else 0.0


def _slots_in_turn(facts: Facts) -> Iterator[DealtSlot]:
    """The trials in slots dealt to the tasks in turn."""
    waiting: dict[str, list[tuple[float, float | None]]] = {row.task.key: [] for row in facts.rows if row.tunable}
    for run in facts.runs:
        for slot in run.slots:
            cost_s = (slot.ended_s - slot.began_s) / max(1, len(slot.latencies_s))
            waiting.setdefault(slot.task, []).extend((cost_s, latency) for latency in slot.latencies_s)
    now, size = 0.0, FIRST_SLOT
    while any(waiting.values()):
        for task, trials in waiting.items():
            dealt, waiting[task] = trials[:size], trials[size:]
            now += sum(cost_s for cost_s, _ in dealt)
            if dealt:
                yield now, task, [latency for _, latency in dealt]
        size = SLOT


def value_at(points: Curve, at_s: float) -> float:
    """The value of a step curve at ``at_s``."""
    return next((value for t, value in reversed(points) if t <= at_s), points[0][1])
