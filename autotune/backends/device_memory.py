"""Subgraphs' use of a device's memory, and their time there if their weights have to be streamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autotune.artifact.directory import Artifact
from autotune.artifact.plan import DeviceMemory
from autotune.backends.device_interface import Room
from autotune.graph.placement import Link
from autotune.graph.streaming import Streaming, choose_resident, resident_s, shares_of_calls, streaming_s
from autotune.host.pages import KERNEL_ALIGNMENT
from schedules.vocabulary.errors import RunError


class CapacityError(RunError):
    """Subgraphs placed on a device do not fit into its memory, not even with their weights streamed."""


@dataclass(frozen=True)
class Held:
    """A subgraph as a device runs it.

    Attributes:
        seconds: of a run with all weights in the device's memory.
    """

    part: Artifact
    seconds: float


@dataclass(frozen=True)
class Loaded:
    """Subgraphs that share a device's memory.

    Attributes:
        seconds: name of a subgraph → seconds of a run, fetching its streamed weights included.
        memory: what they take.
    """

    seconds: Mapping[str, float]
    memory: DeviceMemory


@dataclass(frozen=True)
class DeviceCapacity:
    """A device's memory and the way of streamed weights into it.

    Attributes:
        bytes: that the model may use; 0 if that is not known, and taken for enough.
    """

    device: str
    bytes: int
    link: Link

    def loaded(self, held: Mapping[str, Held], arena_bytes: int) -> Loaded:
        """Return what becomes of the subgraphs ``held``, which are loaded in this order, as the device does it.

        Args:
            arena_bytes: of what passes between them.

        Raises:
            CapacityError: if one does not fit.
        """
        parts = [subgraph.part for subgraph in held.values()]
        room = Room.of(arena_bytes, self.bytes, parts)
        limit = self.bytes or room.arena_bytes + room.inner_bytes + room.weight_bytes
        used, fetched, seconds = arena_bytes, 0, {}
        for name, subgraph in held.items():
            used += subgraph.part.steps.arena_bytes
            streaming = _choice(subgraph.part, min(limit - used, room.share(subgraph.part, limit)))
            if streaming is None:
                raise CapacityError(f"subgraph {name!r} does not fit into {limit} bytes of {self.device}")
            used += streaming.bytes
            fetched += self._fetched(subgraph.part, streaming)
            seconds[name] = self._seconds(subgraph, streaming)
        return Loaded(seconds, DeviceMemory(self.device, self.bytes, used, fetched))

    def at_share(self, held: Held, share: float) -> float | None:
        """Return the seconds of a run if ``share`` of the weights has room; None if no two buffers fit into it."""
        sizes = Room.of(0, 0, [held.part])
        streaming = _choice(held.part, int(share * sizes.weight_bytes))
        return None if streaming is None else self._seconds(held, streaming)

    def resident(self, part: Artifact, arena_bytes: int, seconds: float) -> float:
        """Return the seconds of ``part`` with all weights resident, if it was timed alone in this memory.

        Args:
            arena_bytes: of its inputs and outputs.
        """
        room = Room.of(arena_bytes, self.bytes, [part])
        streaming = _choice(part, room.share(part, self.bytes)) if self.bytes else None
        if streaming is None or not streaming.buffer_bytes:
            return seconds
        return resident_s(replace(part.steps, weights=part.weights), streaming, seconds, self.link)

    def _seconds(self, held: Held, streaming: Streaming) -> float:
        if not streaming.buffer_bytes:
            return held.seconds
        steps = replace(held.part.steps, weights=held.part.weights)
        return streaming_s(steps, streaming, [held.seconds * share for share in shares_of_calls(steps)], self.link)

    def _fetched(self, part: Artifact, streaming: Streaming) -> int:
        return streaming.streamed_bytes(replace(part.steps, weights=part.weights))


def _choice(part: Artifact, budget_bytes: int) -> Streaming | None:
    if budget_bytes < 0:
        return None
    return choose_resident(replace(part.steps, weights=part.weights), budget_bytes)


def aligned(size: int) -> int:
    """Return ``size`` up to the next boundary that kernels assume."""
    return -(-size // KERNEL_ALIGNMENT) * KERNEL_ALIGNMENT


def moved_while_faster(
    lanes: tuple[int, ...], able: Mapping[int, tuple[int, ...]], seconds: Callable[[tuple[int, ...]], float]
) -> tuple[int, ...]:
    """Return ``lanes`` after moves of single subgraphs, each the one that saves most, until none saves anything. Pure.

    Args:
        able: subgraph → lanes that it may be moved to.
        seconds: of the whole model with such lanes; infinite where they do not fit.
    """
    best, least = lanes, seconds(lanes)
    while True:
        moves = [
            (*best[:subgraph], lane, *best[subgraph + 1 :])
            for subgraph, allowed in able.items()
            for lane in allowed
            if lane != best[subgraph]
        ]
        other_s, other = min(((seconds(move), move) for move in moves), default=(least, best))
        if other_s >= least:
            return best
        best, least = other, other_s
