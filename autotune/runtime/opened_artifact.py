"""An artifact opened for a session: an executor for every stream, and whether its requests may be joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.artifact.composite import Composite, one_part, read_composite
from autotune.artifact.directory import Artifact, read_artifact
from autotune.artifact.manifest import AUTO, KERNELS, SHAPES, STREAMS, read_manifest
from autotune.backends.backend_catalog import backend_of
from autotune.host.cpu_claims import session_groups
from autotune.host.machine import read_host
from autotune.runtime.artifact_executor import ArtifactExecutor
from autotune.runtime.batching import Batcher
from autotune.runtime.generation_executor import GenerationExecutor
from autotune.runtime.multi_shape_executor import MultiShapeExecutor
from autotune.runtime.one_shape_executor import FramedExecutor, OneShapeExecutor
from autotune.runtime.segmented_executor import SegmentedExecutor
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.stream_queue import WIDE
from schedules.vocabulary.errors import UsageError


class OpenedArtifact:
    """The executors of every stream.

    Attributes:
        streams: how many there are.
        executors: number of a stream, or ``WIDE`` → what runs there.
        seal: of the manifest.
    """

    def __init__(self, path: Path, threads: int | None, wanted: int | None) -> None:
        manifest = read_manifest(path)
        self._kind, self.seal = str(manifest["kind"]), str(manifest["seal"])
        self.artifact = read_artifact(path) if self._kind == KERNELS else read_composite(path)
        tuned_for = _thread_counts(self.artifact)
        narrow, wide = min(tuned_for), max(tuned_for)
        self.streams = wanted or _streams(self.artifact.provenance.get(STREAMS, 1), narrow)
        if self.streams == 1:
            self.executors = {0: self._open(wide, threads, ())}
            return
        _check_cores_only(self.artifact)
        per_stream = narrow
        if narrow == wide:
            per_stream = threads or min(narrow, max(1, read_host().usable_threads // self.streams))
        groups = session_groups(self.streams, per_stream)
        self.executors = {stream: self._open(narrow, per_stream, group) for stream, group in enumerate(groups)}
        if narrow != wide:
            self.executors[WIDE] = self._open(wide, threads, ())

    def _open(self, tuned_for: int, threads: int | None, cpus: Sequence[int]) -> ArtifactExecutor:
        """Return an executor of the kernels that were tuned for so many threads."""
        if isinstance(self.artifact, Artifact):
            if self.artifact.caches:
                return GenerationExecutor(self.artifact, threads, cpus)
            if self.artifact.interface is not None:
                return MultiShapeExecutor(one_part(self.artifact), threads, cpus)
            kernels = OneShapeExecutor(self.artifact, threads, cpus)
            return kernels if self.artifact.frame is None else FramedExecutor(kernels, self.artifact.frame)
        if self._kind == SHAPES:
            if self.artifact.open(self.artifact.parts[0]).caches:
                return GenerationExecutor(self.artifact, threads, cpus)
            return MultiShapeExecutor(self.artifact, threads, cpus, tuned_for)
        return SegmentedExecutor(self.artifact, threads, cpus)


def _thread_counts(artifact: Artifact | Composite) -> set[int]:
    """The numbers of threads that kernels were tuned for."""
    if isinstance(artifact, Artifact):
        return {artifact.target.threads}
    return {part.threads for part in artifact.tuned} or {1}


def _streams(recorded: Any, threads: int) -> int:
    """The number of streams that an artifact was tuned for, on this machine."""
    return max(1, read_host().usable_threads // threads) if recorded == AUTO else int(recorded)


def _check_cores_only(artifact: Artifact | Composite) -> None:
    """Refuse streams of what is not run by cores alone.

    Raises:
        UsageError: if a device runs a part of it.
    """
    if isinstance(artifact, Artifact) and (artifact.device_parts or not backend_of(artifact.target).has_lanes):
        raise UsageError(
            f"{artifact.path} runs on a device, and streams are groups of CPU cores; open it with 1 stream"
        )


def batcher_of(path: Path, artifact: Artifact | Composite, options: ServeOptions) -> Batcher:
    """Return the batcher, which joins requests.

    Raises:
        UsageError: if that may change results, or the artifact has kernels for one row alone.
    """
    if isinstance(artifact, Artifact) and artifact.interface is not None:
        raise UsageError(
            f"max_batch is {options.max_batch}, but {path} computes the rows of a batch one after the other; "
            "tune it for several, as with --input 'NAME:{1,8}x3x224x224'"
        )
    if isinstance(artifact, Composite):
        for symbol in artifact.interface.symbols:
            if _may_join(artifact, symbol):
                return Batcher(artifact.interface, symbol, options.max_batch, options.max_wait_s)
    raise UsageError(
        f"max_batch is {options.max_batch}, but {path} has no open batch whose rows are independent; "
        "tune it for several, as with --input 'NAME:{1,8}x3x224x224'"
    )


def _may_join(artifact: Composite, symbol: str) -> bool:
    """Return whether rows along ``symbol`` are independent, on one axis of every tensor, and a part has several."""
    interface = artifact.interface
    alone = any(spec.shape.count(symbol) != 1 for spec in (*interface.inputs, *interface.outputs))
    most = max((interface.sizes(part.shapes) or {}).get(symbol, 1) for part in artifact.tuned)
    return symbol in interface.split and not alone and most > 1


def shapes_of_parts(
    artifact: Artifact | Composite, shapes: Mapping[str, tuple[int, ...]]
) -> Mapping[str, tuple[int, ...]]:
    """Shapes of all inputs of the part that takes inputs of these ``shapes``.

    Raises:
        UsageError: if there is none.
    """
    for part in artifact.tuned if isinstance(artifact, Composite) else ():
        if {**part.shapes, **shapes} == part.shapes:
            return part.shapes
    told = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())
    raise UsageError(
        f"no set of shapes for {told}, and the sizes of the random numbers that the model draws follow from no other; "
        "add these shapes to the other --input of 'tune run' and run it again"
    )
