"""Placing subgraphs on a CPU and a device: what each costs on either, and the tensors between them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.graph.lanes import Lane, Way
from autotune.graph.placement import Link, Problem, Tensor
from autotune.host.dtypes import numpy_type
from autotune.interface import TensorSpec

DRIVER_S = 2e-6
"""Seconds of handing over between threads of the driver of lanes, rounded up (docs/lab: branches)."""

INPUTS, OUTPUTS = "inputs", "outputs"
"""Subgraphs without calls, which hold the model's inputs and outputs in the host's memory."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one subgraph.

    Attributes:
        cpu, device: with the other lane idle; ``device`` is None where it cannot run there.
        cpu_busy, device_busy: with the other lane at work; as with it idle where that was not measured.
    """

    cpu: float
    device: float | None
    cpu_busy: float
    device_busy: float | None

    def streaming(self, device_s: float | None) -> Costs:
        """Return the costs where the device takes ``device_s`` alone, because it fetches weights; None: it cannot."""
        if device_s is None or self.device is None or self.device_busy is None:
            return replace(self, device=None, device_busy=None)
        return replace(self, device=device_s, device_busy=self.device_busy + device_s - self.device)


@dataclass(frozen=True)
class Ends:
    """Inputs and outputs of a subgraph, or of the whole model."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def spec_bytes(spec: TensorSpec) -> int:
    """Return the size of a tensor."""
    return math.prod(spec.shape) * numpy_type(spec.dtype).itemsize


def values_of(parts: Sequence[Ends], model: Ends) -> list[str]:
    """The values that pass between subgraphs, or in and out of the model, as ``problem_of`` numbers its tensors."""
    read = {spec.name for ends in parts for spec in ends.inputs} | {spec.name for spec in model.outputs}
    written = (*model.inputs, *(spec for ends in parts for spec in ends.outputs))
    return [spec.name for spec in written if spec.name in read]


def problem_of(
    parts: Sequence[Ends], model: Ends, costs: Sequence[Costs], lanes: tuple[Lane, Lane], links: Mapping[Way, Link]
) -> tuple[Problem, list[str]]:
    """Placing ``parts`` on the CPU and the device, and the values by the numbers of its tensors.

    The first subgraph holds the model's inputs and the last one its outputs. Both take no time on the CPU's lane, so
    that what passes between the model's caller and the device is paid for.
    """
    readers: dict[str, list[int]] = {}
    for number, ends in enumerate((*parts, Ends(OUTPUTS, model.outputs, ())), 1):
        for spec in ends.inputs:
            readers.setdefault(spec.name, []).append(number)
    makers = (Ends(INPUTS, (), model.inputs), *parts)
    maker_of = {spec.name: (number, spec) for number, ends in enumerate(makers) for spec in ends.outputs}
    values = values_of(parts, model)
    tensors = tuple(Tensor(maker_of[name][0], tuple(readers[name]), spec_bytes(maker_of[name][1])) for name in values)
    cpu, device = lanes
    still = (0.0, None)

    def table(*pairs: tuple[float, float | None]) -> tuple[tuple[float, float | None], ...]:
        return (still, *pairs, still)

    beside = {
        device.kind: table(*((cost.cpu_busy, cost.device) for cost in costs)),
        cpu.kind: table(*((cost.cpu, cost.device_busy) for cost in costs)),
    }
    alone = table(*((cost.cpu, cost.device) for cost in costs))
    return Problem(lanes, tensors, alone, beside, Link(DRIVER_S), links), values
