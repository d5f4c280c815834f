"""A device as lanes use it: a memory of its own, an engine that computes and engines that copy, each for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from numpy.typing import NDArray

from autotune.artifact.directory import Artifact
from autotune.graph.streaming import Streaming, choose_resident
from autotune.host.pages import KERNEL_ALIGNMENT
from schedules.vocabulary.errors import RunError


class OutOfMemoryError(RunError):
    """The request does not fit into the memory of a device, or into the share that a lane may use."""


class DeviceLostError(RunError):
    """The device answers no more: what it held is gone, and whoever used it has to open it again."""


@dataclass(frozen=True)
class Room:
    """Memory of a device for one model.

    Attributes:
        arena_bytes: for what passes between subgraphs.
        limit_bytes: for everything; 0 for all that the device has.
        inner_bytes: for what passes between kernels, in all subgraphs together.
        weight_bytes: of all subgraphs.
    """

    arena_bytes: int
    limit_bytes: int = 0
    inner_bytes: int = 0
    weight_bytes: int = 0

    @staticmethod
    def of(arena_bytes: int, limit_bytes: int, parts: Iterable[Artifact]) -> Room:
        """For the subgraphs ``parts``."""
        listed = list(parts)
        inner = sum(part.steps.arena_bytes for part in listed)
        return Room(arena_bytes, limit_bytes, inner, sum(weights_bytes(part) for part in listed))

    def share(self, part: Artifact, memory_bytes: int) -> int:
        """Bytes for the weights of ``part``: as large a share of what is left for weights as its weights are of all.

        Args:
            memory_bytes: that the device has.
        """
        limit = min(self.limit_bytes or memory_bytes, memory_bytes)
        left = limit - self.arena_bytes - self.inner_bytes
        own = weights_bytes(part)
        return own if left >= self.weight_bytes else max(0, left * own // max(1, self.weight_bytes))


def fitting_weights(name: str, part: Artifact, budget_bytes: int) -> Streaming:
    """Choose the weights of ``part`` that stay on the device ``name``.

    Raises:
        OutOfMemoryError: if not even two buffers fit into ``budget_bytes``.
    """
    streaming = choose_resident(replace(part.steps, weights=part.weights), budget_bytes)
    if streaming is None:
        raise OutOfMemoryError(
            f"{name} has {budget_bytes} bytes for its weights, and no two buffers fit into them; let it use more, "
            "or place less on it"
        )
    return streaming


def weights_bytes(part: Artifact) -> int:
    """Size of all weights of a subgraph, each on a boundary that kernels assume."""
    return sum(-(-weight.nbytes // KERNEL_ALIGNMENT) * KERNEL_ALIGNMENT for weight in part.weights)


class Device(Protocol):
    """A device that was opened for one model.

    Every method returns when its work is done. ``run``, ``upload``, ``download`` and ``pull`` may be called at the same
    time, one thread each (``pull`` one for each other device). They use different engines, so copies go on beside
    kernels.

    Raises:
        DeviceLostError: by every method, once the device is lost.
    """

    @property
    def free_bytes(self) -> int:
        """Memory that the model may still use."""
        ...

    @property
    def used_bytes(self) -> int:
        """Memory that it uses: the arena, weights and buffers, and what passes between kernels."""
        ...

    @property
    def streamed_bytes(self) -> int:
        """Weights that one run of every loaded subgraph fetches."""
        ...

    def load(self, part: Artifact, inputs: Sequence[int], outputs: Sequence[int]) -> Callable[[], None]:
        """Keep the weights of a subgraph, and return the function that runs it; weights beyond its share are streamed.

        Args:
            inputs, outputs: byte offsets in the arena of what it reads and writes, in its order.

        Raises:
            OutOfMemoryError: if there is no room.
        """
        ...

    def upload(self, array: NDArray[Any], offset: int) -> None:
        """Copy ``array`` into the arena, ``offset`` bytes from its begin."""
        ...

    def fetch(self, size: int) -> None:
        """Copy ``size`` bytes to the begin of the arena, as streamed weights are copied; their values do not matter."""
        ...

    def download(self, offset: int, array: NDArray[Any]) -> None:
        """Copy as many bytes of the arena as ``array`` has into it."""
        ...

    def reaches(self, other: Device) -> bool:
        """Return whether ``pull`` can copy from ``other`` past the host's memory."""
        ...

    def pull(self, other: Device, source: int, target: int, size: int) -> None:
        """Copy ``size`` bytes from byte ``source`` of the arena of ``other`` to byte ``target`` of its own."""
        ...

    def close(self) -> None:
        """Give the memory back; safe to call twice."""
        ...
