"""What every product takes in fp32 and in bf16: by the kernels that two artifacts of one model run it in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.artifact.directory import Artifact, read_artifact, read_tasks
from autotune.artifact.precision_choice import precision_of
from autotune.measure.measurer import symbol_of
from schedules.task import Task

ANCHORS = ("conv2d", "depthwise", "matmul")
"""In the names of kernels that hold a product, of whatever types."""


@dataclass(frozen=True)
class ProductTimes:
    """One product in two artifacts.

    Attributes:
        number: as ``options.Precision`` numbers it.
        place: of its kernel in ``product_kernels``.
        fp32_s, bf16_s: seconds of its kernels, as measured while they were tuned.
    """

    number: int
    place: int
    fp32_s: float
    bf16_s: float

    @property
    def gain_s(self) -> float:
        """Seconds saved by bf16; negative where fp32 is faster, as Winograd's convolutions may be."""
        return self.fp32_s - self.bf16_s


def product_times(fp32: Path, bf16: Path) -> tuple[ProductTimes, ...]:
    """The products of a model, by its artifacts in fp32 and with all products in bf16.

    Kernels are paired by the order in which the two programs call them. Where the kernels cannot be told apart (a
    program that is not flat, a product that is not a kernel of its own, a kernel without a measurement), there is no
    answer, and the result is empty.
    """
    artifacts = [read_artifact(path) for path in (fp32, bf16)]
    calls = [_product_calls(artifact) for artifact in artifacts]
    if len(calls[0]) != len(calls[1]):
        return ()
    found = [place for place, (task, _) in enumerate(calls[1]) if precision_of(task) == "bf16"]
    if len(found) != int(artifacts[1].provenance.get("products", 0)):
        return ()
    times = []
    for number, place in enumerate(found):
        (_, long_s), (_, short_s) = (each[place] for each in calls)
        if long_s is None or short_s is None:
            return ()
        times.append(ProductTimes(number, place, long_s, short_s))
    return tuple(times)


def product_kernels(path: Path) -> list[str]:
    """Keys of the tasks that the artifact at ``path`` runs products in, in the order of its calls."""
    return [task.key for task, _ in _product_calls(read_artifact(path))]


def kernels_s(path: Path) -> float:
    """Seconds of all kernels of one inference of the artifact at ``path``; infinite where one was not measured."""
    seconds = {choice.task: choice.latency_s for choice in read_artifact(path).plan.choices}
    return sum(task.weight * (seconds[task.key] or math.inf) for task in read_tasks(path)[0])


def _product_calls(artifact: Artifact) -> Sequence[tuple[Task, float | None]]:
    """The calls of kernels that hold products, in order, with what the kernels took in seconds."""
    if artifact.steps is None:
        return ()
    tasks = {symbol_of(task.key): task for task in read_tasks(artifact.path)[0]}
    seconds = {choice.task: choice.latency_s for choice in artifact.plan.choices}
    called = [tasks[call.symbol] for call in artifact.steps.calls if call.symbol in tasks]
    return [(task, seconds[task.key]) for task in called if any(anchor in task.name for anchor in ANCHORS)]
