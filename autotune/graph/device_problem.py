"""Placing subgraphs on cores and devices: what each costs on every lane, and the tensors between them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.graph.lanes import Lane, Way
from autotune.graph.placement import Link, Problem, Tensor
from autotune.host.dtypes import numpy_type
from autotune.interface import TensorSpec

DRIVER_S = 2e-6
"""Seconds of handing over between threads of the driver of lanes, rounded up (docs/lab: branches)."""

INPUTS, OUTPUTS = "inputs", "outputs"
"""Subgraphs without calls, which hold the model's inputs and outputs in the host's memory."""

Row = tuple[float | None, ...]
"""(n_lanes,) seconds of a subgraph on every lane; None where it cannot run."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one subgraph on every lane.

    Attributes:
        alone: with the other lanes idle.
        beside: kind of lane (``Lane.kind``) → with lanes of that kind at work next to it; as ``alone`` where a kind is
            missing.
    """

    alone: Row
    beside: Mapping[str, Row] = field(default_factory=dict)

    def at(self, lane: int, seconds: float | None) -> Costs:
        """Return the costs where ``lane`` takes ``seconds`` alone, because it fetches weights; None: it cannot run."""
        known = self.alone[lane]

        def changed(row: Row) -> Row:
            was = row[lane]
            now = None if seconds is None or known is None or was is None else was + seconds - known
            return (*row[:lane], now, *row[lane + 1 :])

        return Costs(changed(self.alone), {kind: changed(row) for kind, row in self.beside.items()})

    def on(self, lanes: Iterable[int]) -> Costs:
        """Return the costs where no other lane than ``lanes`` may run it."""
        allowed = set(lanes)

        def kept(row: Row) -> Row:
            return tuple(seconds if lane in allowed else None for lane, seconds in enumerate(row))

        return Costs(kept(self.alone), {kind: kept(row) for kind, row in self.beside.items()})


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
    parts: Sequence[Ends], model: Ends, costs: Sequence[Costs], lanes: Sequence[Lane], links: Mapping[Way, Link]
) -> tuple[Problem, list[str]]:
    """Placing ``parts`` on ``lanes``, and the values by the numbers of its tensors.

    The first subgraph holds the model's inputs and the last one its outputs. Both take no time on lanes of cores and
    cannot run on devices, so that what passes between the model's caller and a device is paid for.
    """
    readers: dict[str, list[int]] = {}
    for number, ends in enumerate((*parts, Ends(OUTPUTS, model.outputs, ())), 1):
        for spec in ends.inputs:
            readers.setdefault(spec.name, []).append(number)
    makers = (Ends(INPUTS, (), model.inputs), *parts)
    maker_of = {spec.name: (number, spec) for number, ends in enumerate(makers) for spec in ends.outputs}
    values = values_of(parts, model)
    tensors = tuple(Tensor(maker_of[name][0], tuple(readers[name]), spec_bytes(maker_of[name][1])) for name in values)
    still = tuple(None if lane.device else 0.0 for lane in lanes)
    kinds = sorted({kind for cost in costs for kind in cost.beside})
    beside = {kind: (still, *(cost.beside.get(kind, cost.alone) for cost in costs), still) for kind in kinds}
    alone = (still, *(cost.alone for cost in costs), still)
    return Problem(tuple(lanes), tensors, alone, beside, Link(DRIVER_S), links), values
