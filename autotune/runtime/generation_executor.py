"""Running a decoder whose kernels write its caches in place: parts for prompts in buckets, and for single tokens.

A part takes so many new positions (its *length*) of so many sequences (its *batch*); a prompt of several sequences is
computed one after the other where there is no part for all of them. A call with fewer positions is padded with
positions behind the end, which nothing looks at; one with more is made in several calls. What a model takes besides
its caches is recognised by its sizes: an axis as long as the new positions is padded behind, one as long as past and
new positions together keeps its past in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from autotune.artifact.composite import Composite
from autotune.artifact.directory import Artifact
from autotune.backends.backend_catalog import backend_of
from autotune.backends.executor import Executor
from autotune.host.dtypes import numpy_type
from autotune.interface import Cache, OpenSpec, TensorSpec
from autotune.runtime.artifact_executor import Array, Arrays, LazyExecutor
from autotune.runtime.inputs import Spec, shape_text
from autotune.runtime.key_value_caches import KeyValueCaches
from schedules.vocabulary.errors import UsageError

SCATTER, GROUP = "scatter", "group"

TOTAL = "total_sequence_length"
"""Name of the open size of masks: past and new positions."""


@dataclass(frozen=True)
class Bucket:
    """One part.

    Attributes:
        batch, length: sequences, and new positions of each.
        past: positions of the past that it was made for.
        inputs: without the caches.
    """

    batch: int
    length: int
    past: int
    inputs: tuple[TensorSpec, ...]
    artifact: Artifact


class Place(NamedTuple):
    """Which of a call's new positions a part runs on.

    Attributes:
        used: positions before these, those in the caches and those of the call.
        before, taken, new: of the call's new positions how many come before these, how many these are, and all.
    """

    used: int
    before: int
    taken: int
    new: int


class GenerationExecutor(LazyExecutor):
    """Runs the smallest part that holds a call.

    Args:
        artifact: one part, or several of equal capacity.
        threads: threads to run on; None for what the artifact was tuned for.
        cpus: logical CPUs to run on; none for the first of this process.

    Attributes:
        caches: past and present of every cache.
        batches: numbers of sequences that there are parts for.

    Raises:
        ArtifactError: if a file is damaged, or this machine cannot run the artifact.
    """

    def __init__(self, artifact: Artifact | Composite, threads: int | None, cpus: Sequence[int] = ()) -> None:
        super().__init__()
        parts = [artifact] if isinstance(artifact, Artifact) else [artifact.open(part) for part in artifact.parts]
        first = parts[0]
        self.caches: tuple[Cache, ...] = first.caches
        whole = first if isinstance(artifact, Artifact) else artifact.interface
        self.inputs: Sequence[Spec] = whole.inputs
        self.outputs: Sequence[Spec] = whole.outputs
        self.provenance: Mapping[str, Any] = artifact.provenance
        self.threads = threads or first.target.threads
        self._cpus = cpus
        self._pasts = [cache.past for cache in self.caches]
        self._presents = [cache.present for cache in self.caches]
        self.kind = self.caches[0].kind
        if self.kind != SCATTER and isinstance(artifact, Composite):
            self.inputs = [self._with_open_total(spec) for spec in whole.inputs]
        self.buckets = sorted((self._bucket(part) for part in parts), key=lambda bucket: (bucket.batch, bucket.length))
        self.batches = sorted({bucket.batch for bucket in self.buckets})
        self._mask_number = self._number_of_mask()
        self._executor(self.buckets[0])

    def _with_open_total(self, spec: Spec) -> Spec:
        """``spec`` with past and new positions together left open: in every part they are as long as the cache."""
        if not any(size == self.capacity for size in spec.shape):
            return spec
        return OpenSpec(spec.name, tuple(TOTAL if size == self.capacity else size for size in spec.shape), spec.dtype)

    @property
    def capacity(self) -> int:
        """Positions that a cache holds."""
        return self.caches[0].capacity

    def cache_specs(self, batch: int) -> list[TensorSpec]:
        """Name, shape and type of the buffers for ``batch`` sequences."""
        inputs = self.buckets[0].artifact.inputs
        specs = [inputs[number] for number in self._pasts]
        return [TensorSpec(s.name, (batch, s.shape[1], self.capacity, s.shape[3]), s.dtype) for s in specs]

    def run(self, arrays: Arrays) -> list[Array]:
        """Implement ``Executor.run``: caches are copied in, and copied out again. ``step`` does not copy."""
        pasts, rest, new = self._parted(arrays)
        caches = KeyValueCaches(self.cache_specs(pasts[0].shape[0]))
        caches.fill(pasts)
        caches.lengths[:] = self._starts(rest, pasts[0].shape[2], new)
        outputs = iter(self.step(caches, rest))
        held = self.capacity if self.kind == SCATTER else pasts[0].shape[2] + new
        presents = dict(zip(self._presents, caches.presents(held), strict=True))
        if self.kind == SCATTER:  # what a padded call wrote behind the end is not the model's
            for number, past in zip(self._presents, pasts, strict=True):
                presents[number][:, :, caches.length :] = past[:, :, caches.length :]
        return [presents[number] if number in presents else next(outputs) for number in range(len(self.outputs))]

    def step(self, caches: KeyValueCaches, arrays: Arrays) -> list[Array]:
        """Run on new positions, append them to ``caches``; every output but the presents.

        Args:
            arrays: every input but the pasts, in order.

        Raises:
            UsageError: for sizes that do not go together, a batch that there is no part for, or a full cache.
            RunError: as ``Executor.run``.
        """
        new, batch, used = self._new_positions(arrays), len(caches.lengths), caches.length
        if batch not in self.batches:
            raise UsageError(
                f"{batch} sequences at a time, and the artifact is for {', '.join(map(str, self.batches))}; "
                f"add {batch} to --sequences and run 'tune run' again"
            )
        if used + new > self.capacity:
            raise UsageError(
                f"{used} positions are in use and {new} are new, and the cache holds {self.capacity}; "
                f"shorten the prompt, rewind the binding, or run 'tune run' with --positions {2 * self.capacity}"
            )
        lengths = self._lengths_after(caches, arrays, new)
        before = caches.lengths.copy()
        try:
            outputs = self._made(caches, arrays, new, used)
        except BaseException:  # no position of a call that failed is in use
            caches.lengths[:] = before
            raise
        caches.lengths[:] = lengths
        return outputs

    def _made(self, caches: KeyValueCaches, arrays: Arrays, new: int, used: int) -> list[Array]:
        """Work like ``step``, of what fits; leaves lengths behind that are not those of the end."""
        batch = len(caches.lengths)
        if batch > 1 and new > max(other.length for other in self.buckets if other.batch == batch):
            return self._row_by_row(caches, arrays)
        pieces: list[list[Array]] = []
        done = 0
        while done < new:
            bucket = self._fitting(batch, new - done, used + done)
            count = min(bucket.length, new - done)
            pieces.append(self._call(bucket, caches, arrays, Place(used + done, done, count, new)))
            done += count
            if done < new:
                caches.lengths += np.int32(count)
        if len(pieces) == 1:
            return pieces[0]
        return [self._joined(parts) for parts in zip(*pieces, strict=True)]

    def _row_by_row(self, caches: KeyValueCaches, arrays: Arrays) -> list[Array]:
        """Work like ``step``, one sequence after the other: there are parts for prompts of one."""
        count = len(caches.lengths)
        by_row = [
            self.step(
                caches.row(row),
                [array[row : row + 1] if array.ndim > 1 and len(array) == count else array for array in arrays],
            )
            for row in range(count)
        ]
        return [np.concatenate(parts, axis=0) for parts in zip(*by_row, strict=True)]

    def profile(self, arrays: Arrays) -> list[tuple[str, float]]:
        """Implement ``Executor.profile``, of a part for just so many positions and sequences."""
        pasts, rest, new = self._parted(arrays)
        batch = pasts[0].shape[0]
        bucket = next(
            (candidate for candidate in self.buckets if (candidate.batch, candidate.length) == (batch, new)), None
        )
        if bucket is None:
            there = ", ".join(f"{candidate.length} of {candidate.batch}" for candidate in self.buckets)
            raise UsageError(f"no part for {new} positions of {batch} sequences; there are: {there}")
        caches = KeyValueCaches(self.cache_specs(batch))
        caches.fill(pasts)
        caches.lengths[:] = self._starts(rest, pasts[0].shape[2], new)
        place = Place(caches.length, 0, new, new)
        return self._executor(bucket).profile(self._given(bucket, caches, rest, place))

    def check(self, arrays: Arrays) -> None:
        """Implement ``Executor.check``, of the caches; ``step`` looks at the rest before it runs."""
        self._parted(arrays)

    def _bucket(self, artifact: Artifact) -> Bucket:
        past = artifact.inputs[self._pasts[0]].shape
        capacity = artifact.caches[0].capacity
        rest = tuple(spec for number, spec in enumerate(artifact.inputs) if number not in self._pasts)
        outputs = [s for number, s in enumerate(artifact.outputs) if number not in self._presents]
        length = capacity - past[2] if self.kind != SCATTER else outputs[0].shape[1]
        return Bucket(past[0], length, past[2], rest, artifact)

    def _executor(self, bucket: Bucket) -> Executor:
        key = id(bucket)
        if key not in self._opened:
            backend = backend_of(bucket.artifact.target)
            backend.check_host(bucket.artifact)
            self._keep(key, backend.executor(bucket.artifact, self.threads, self._cpus))
        opened: Executor = self._opened[key]
        return opened

    def _fitting(self, batch: int, count: int, used: int) -> Bucket:
        """The smallest bucket that holds ``count`` positions behind ``used`` ones, else the largest that fits there."""
        there = [bucket for bucket in self.buckets if bucket.batch == batch and used + bucket.length <= self.capacity]
        if not there:
            lengths = [bucket.length for bucket in self.buckets if bucket.batch == batch]
            raise UsageError(
                f"{used} positions are in use of {self.capacity}, and no part for fewer than {min(lengths)} new ones "
                "goes behind them; shorten the prompt, or run 'tune run' with more --positions"
            )
        return next((bucket for bucket in there if bucket.length >= count), there[-1])

    def _call(self, bucket: Bucket, caches: KeyValueCaches, arrays: Arrays, place: Place) -> list[Array]:
        """Outputs for the new positions of ``place``."""
        outputs = self._executor(bucket).run(self._given(bucket, caches, arrays, place))
        if place.taken == bucket.length:
            return outputs
        return [np.ascontiguousarray(array[:, : place.taken]) for array in outputs]

    def _given(self, bucket: Bucket, caches: KeyValueCaches, arrays: Arrays, place: Place) -> list[Array]:
        """Return the arguments of the kernels of ``bucket``, in order."""
        arguments = [_fitted(bucket, spec, array, place) for spec, array in zip(bucket.inputs, arrays, strict=True)]
        for number, buffer in zip(self._pasts, caches.buffers, strict=True):  # ascending: each finds its place
            arguments.insert(number, buffer)
        arguments.append(caches.lengths)
        return arguments

    def _new_positions(self, arrays: Arrays) -> int:
        """Return how many new positions a call has: the length of its tokens.

        Raises:
            UsageError: if ranks, sizes or batches do not fit.
        """
        bucket = self.buckets[0]
        new = -1
        for spec, array in zip(bucket.inputs, arrays, strict=True):
            if array.ndim != len(spec.shape):
                raise UsageError(f"input {spec.name!r} has {array.ndim} axes, the model takes {len(spec.shape)}")
            if spec.shape[-1] == bucket.length and len(spec.shape) in (1, 2) and new < 0:
                new = array.shape[-1]
        if new < 1:
            raise UsageError("a call must have one new position or more; give input_ids of shape batch x tokens")
        return new

    def _parted(self, arrays: Arrays) -> tuple[list[Array], list[Array], int]:
        """The pasts, the other inputs, and how many new positions there are.

        Raises:
            UsageError: if the sizes of the pasts do not fit, or there are no new positions.
        """
        pasts = [arrays[number] for number in self._pasts]
        rest = [array for number, array in enumerate(arrays) if number not in self._pasts]
        new = self._new_positions(rest)
        self._check_pasts(pasts, pasts[0].shape[0] if pasts[0].ndim else 0)
        return pasts, rest, new

    def _check_pasts(self, pasts: Sequence[Array], batch: int) -> None:
        wanted = self.cache_specs(batch)
        for spec, past in zip(wanted, pasts, strict=True):
            b, g, _, d = spec.shape
            exact = self.kind == SCATTER
            if past.ndim != 4 or (past.shape[0], past.shape[1], past.shape[3]) != (b, g, d):
                raise UsageError(
                    f"cache {spec.name!r} has shape {shape_text(past.shape)}; it must be {b}x{g}xPOSITIONSx{d}"
                )
            if past.shape[2] != pasts[0].shape[2] or (exact and past.shape[2] != self.capacity):
                length = self.capacity if exact else pasts[0].shape[2]
                raise UsageError(f"cache {spec.name!r} has {past.shape[2]} positions; it must have {length}")
            if past.shape[2] > self.capacity:
                raise UsageError(
                    f"cache {spec.name!r} has {past.shape[2]} positions, and the artifact holds {self.capacity}; "
                    f"run 'tune run' with --positions {past.shape[2]}"
                )

    def _number_of_mask(self) -> int:
        """Return the number of the mask over all positions, (batch, positions) of integers; -1 for none."""
        for number, spec in enumerate(self.buckets[0].inputs):
            if len(spec.shape) == 2 and spec.shape[1] == self.capacity and numpy_type(spec.dtype).kind in "iub":
                return number
        return -1

    def _starts(self, arrays: Arrays, past: int, new: int) -> Array | int:
        """Return where the new positions begin, of a call that brings its own caches."""
        if self.kind == SCATTER:
            place = next((a for s, a in zip(self.buckets[0].inputs, arrays, strict=True) if len(s.shape) == 1), None)
            if place is None:
                raise UsageError("the model says nowhere at which position new tokens begin; use session.io_binding()")
            if len(place) > 1 and not np.array_equal(place, np.arange(place[0], place[0] + len(place))):
                raise UsageError(
                    f"cache positions {place[:8].tolist()} do not follow each other; give consecutive ones"
                )
            return int(place[0])
        if self.kind == GROUP and past and self._mask_number >= 0:
            return np.asarray(np.maximum(arrays[self._mask_number].sum(axis=1) - new, 0), np.int32)
        return past

    def _lengths_after(self, caches: KeyValueCaches, arrays: Arrays, new: int) -> Array:
        if self.kind != GROUP or self._mask_number < 0:
            return caches.lengths + np.int32(new)
        return np.asarray(np.add.reduce(arrays[self._mask_number], axis=1))

    def _joined(self, parts: Sequence[Array]) -> Array:
        return np.concatenate(parts, axis=1)


def _fitted(bucket: Bucket, spec: TensorSpec, array: Array, place: Place) -> Array:
    """``array`` in the shape of ``spec``: the new positions of ``place``, padded."""
    if array.shape == spec.shape and place.taken == place.new:
        return np.ascontiguousarray(array)
    padded = np.zeros(spec.shape, array.dtype)
    source: list[slice] = []
    target: list[slice] = []
    spread = -1
    past = place.used - place.before
    for axis, (size, extent) in enumerate(zip(spec.shape, array.shape, strict=True)):
        if size == bucket.length and extent == place.new:
            source.append(slice(place.before, place.before + place.taken))
            target.append(slice(0, place.taken))
        elif size == extent:
            source.append(slice(None))
            target.append(slice(None))
        elif extent != past + place.new:
            raise UsageError(
                f"input {spec.name!r} has {extent} elements on axis {axis}; with {past} positions in use "
                f"and {place.new} new ones it must have {past + place.new}"
            )
        else:
            spread = axis
            source.append(slice(0, extent))
            target.append(slice(0, extent))
    if spread < 0:
        padded[tuple(target)] = array[tuple(source)]
        return padded
    for start, to, length in ((0, 0, place.used), (place.used, bucket.past, place.taken)):
        source[spread], target[spread] = slice(start, start + length), slice(to, to + length)
        padded[tuple(target)] = array[tuple(source)]
    return padded
