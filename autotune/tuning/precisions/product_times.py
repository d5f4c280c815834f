"""Times of every product in fp32 and in bf16: by the kernels that two artifacts of one model run it in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from autotune.artifact.directory import Artifact, read_artifact, read_tasks
from autotune.artifact.precision_choice import precision_of
from autotune.measure.measurer import symbol_of
from autotune.runtime.model_timing import kernel_times
from autotune.runtime.session import InferenceSession
from schedules.task import Task
from schedules.templates.by_hand.plain_attention import NAME as ATTENTION
from schedules.templates.cpu.batch_matmul import OP as OF_ACTIVATIONS

ANCHORS = ("conv2d", "depthwise", "channel_sums", "matmul", "dense", "product")
"""In the names of kernels that hold a product, of whatever types."""


@dataclass(frozen=True)
class ProductTimes:
    """One product in two artifacts.

    Attributes:
        number: as ``options.Precision`` numbers it.
        place: of its kernel in ``product_kernels``.
        fp32_s, bf16_s: seconds of its kernels, as measured while they were tuned; or in inferences, both.
    """

    number: int
    place: int
    fp32_s: float
    bf16_s: float

    @property
    def gain_s(self) -> float:
        """Seconds saved by bf16; negative where fp32 is faster, as Winograd's convolutions may be."""
        return self.fp32_s - self.bf16_s


def product_times(fp32: Path, bf16: Path, feed: Mapping[str, Any] | None) -> tuple[ProductTimes, ...]:
    """The products of a model, by its artifacts in fp32 and with all products in bf16.

    Kernels are paired by the order in which the two programs call them. Attention is one kernel in fp32, which counts
    as two products of half of its time. Where the kernels cannot be told apart (a program that is not flat, a product
    that is not a kernel of its own), there is no answer, and the result is empty.

    Args:
        feed: inputs of inferences that time products of which a kernel was not measured, as a first guess that the
            budget did not reach; None if nothing may be run: then there is no answer for any.
    """
    artifacts = [read_artifact(path) for path in (fp32, bf16)]
    calls = [_product_calls(artifact) for artifact in artifacts]
    if len(calls[0]) != len(calls[1]):
        return ()
    places = [place for place, call in enumerate(calls[1]) if precision_of(call.task) == "bf16"]
    if len(places) != int(artifacts[1].provenance.get("products", 0)):
        return ()
    pairs = [(calls[0][place], calls[1][place]) for place in places]
    run: list[Sequence[tuple[str, float]]] = []
    if any(call.tuned_s is None for pair in pairs for call in pair):
        if feed is None:
            return ()
        run = [kernel_times(partial(InferenceSession(path).profile, feed)) for path in (fp32, bf16)]
        if not all(run):  # kernels of a CUDA graph are not timed one by one
            return ()
    in_order = sorted(range(len(places)), key=lambda at: pairs[at][1].index)
    times = []
    for number, (place, (long, short)) in enumerate((places[at], pairs[at]) for at in in_order):
        if long.tuned_s is None or short.tuned_s is None:
            seconds = run[0][long.index][1] * long.share, run[1][short.index][1]
        else:
            seconds = long.tuned_s * long.share, short.tuned_s
        times.append(ProductTimes(number, place, *seconds))
    return tuple(times)


def product_kernels(path: Path) -> list[str]:
    """Keys of the tasks that the artifact at ``path`` runs products in: those with weights, then others, as called."""
    return [call.task.key for call in _product_calls(read_artifact(path))]


def kernels_s(path: Path) -> float:
    """Seconds of all kernels of one inference of the artifact at ``path``; infinite where one was not measured."""
    seconds = {choice.task: choice.latency_s for choice in read_artifact(path).plan.choices}
    return sum(task.weight * (seconds[task.key] or math.inf) for task in read_tasks(path)[0])


@dataclass(frozen=True)
class _Call:
    """A call of a kernel that holds a product.

    Attributes:
        index: its number among all calls.
        tuned_s: what the kernel took, if measured.
        share: of the product in that.
    """

    index: int
    task: Task
    tuned_s: float | None
    share: float = 1.0


def _product_calls(artifact: Artifact) -> list[_Call]:
    """Return the calls in order, products of two activations last: attention may compute two of them at once."""
    tasks = {symbol_of(task.key): task for task in read_tasks(artifact.path)[0]}
    seconds = {choice.task: choice.latency_s for choice in artifact.plan.choices}
    called = [(index, tasks.get(call.symbol)) for index, call in enumerate(artifact.steps.calls)]
    calls: list[_Call] = []
    attended: list[_Call] = []
    for index, task in called:
        if task is not None and task.template == ATTENTION:
            attended += [_Call(index, task, seconds[task.key], 0.5)] * 2
        elif task is not None and any(anchor in task.name for anchor in ANCHORS):
            kind = attended if task.template == OF_ACTIVATIONS else calls
            kind.append(_Call(index, task, seconds[task.key]))
    return calls + attended
