"""Artifacts in parts: one model for several sets of input shapes, or in segments that run one after the other.

    manifest.json       see ``manifest.py``; also ``interface``, the inputs and outputs with what may be padded or split
    weights.bin         every weight of the parts once, in whatever forms their kernels want it
    part-0/ …           artifacts of kernels, without their weights.bin
    model.onnx          beside sets of shapes: the model, with which ONNX Runtime serves other sizes
    part-0.onnx …       beside a tuned segment: the model that it was tuned from, for ``tune verify``, ``bench`` and
                        ``tasks``; not needed to run, and its hash is in the provenance of the segment's manifest
    fallback-1.onnx …   fallback partitions: ONNX Runtime runs these, because TVM cannot express an operator of theirs

Values pass between segments by name. Sets of shapes and segments are told apart by the manifest's ``kind``; files,
hashes and weights are the same for both.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autotune.artifact.directory import Artifact, Source, Weights, hold_part, kernels_part, read_artifact
from autotune.artifact.manifest import (
    KERNELS,
    MANIFEST,
    ONNX,
    SEGMENTS,
    SHAPES,
    WEIGHTS,
    check_file,
    check_files,
    damage_reported,
    digest_of,
    part_path,
    read_manifest,
    sha256,
    write_manifest,
)
from autotune.artifact.plain_data import decode, encode
from autotune.artifact.replacement import new_artifact
from autotune.artifact.weights_file import Entry, SharedWeights, read_weights, write_weights
from autotune.graph.steps import MOST_LIVE, LiveSizes
from autotune.interface import Interface, OpenSpec
from schedules.vocabulary.errors import ArtifactError, OneSetError

ONE_SET = (
    "the host deals with sequences, strings or sizes that depend on data around the kernels; such a model takes one "
    "set of shapes (each --input once) and one number of threads"
)

MODEL = "model.onnx"
"""File name of the model for sizes that no part serves."""


@dataclass(frozen=True)
class Part:
    """One set of shapes, or one segment.

    Attributes:
        path: of an artifact of kernels, or of an ONNX file.
        kind: ``kernels``, or ``onnx`` for what ONNX Runtime runs.
        inputs, outputs: what it reads and makes; a size that depends on data is ``?``.
        operators: kinds of the nodes that ONNX Runtime runs.
        weights: numbers of its weights among those of the whole, in its own order.
        threads: that its kernels were tuned for; 0 where ONNX Runtime runs it.
        source: what it is opened from; None where ONNX Runtime runs it.
        live: what may be left out for smaller sizes than its own.
        latency_ms: median that was measured when its kernels were tuned; None if it was not.
    """

    path: Path
    kind: str
    inputs: tuple[OpenSpec, ...]
    outputs: tuple[OpenSpec, ...]
    operators: tuple[str, ...]
    weights: tuple[int, ...]
    threads: int = 0
    source: Source | None = field(default=None, compare=False)
    live: LiveSizes | None = None
    latency_ms: float | None = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes by name of the inputs of a part that is an artifact of kernels."""
        return {spec.name: tuple(int(size) for size in spec.shape) for spec in self.inputs}


@dataclass(frozen=True)
class Composite:
    """A checked artifact in parts.

    Attributes:
        kind: ``shapes`` or ``segments``.
        entries: where the weights lie.
        other_sizes: hash of the model that ONNX Runtime runs for sizes that no part serves; empty where none does.
    """

    path: Path
    kind: str
    interface: Interface
    parts: tuple[Part, ...]
    provenance: Mapping[str, Any]
    entries: Sequence[Entry]
    other_sizes: str = ""

    def whole_model(self) -> Part:
        """Return the model for other sizes, as ONNX Runtime runs it.

        Raises:
            ArtifactError: if it is missing, was changed, or has data in other files.
        """
        from autotune.artifact.fallback_file import read_fallback  # loads ONNX, which nothing else of an artifact needs

        place = self.path / MODEL
        check_file(place, self.other_sizes)
        interface, _ = read_fallback(place)
        return Part(place, ONNX, interface.inputs, interface.outputs, ("every operator",), ())

    @property
    def tuned(self) -> tuple[Part, ...]:
        """The parts that are artifacts of kernels."""
        return tuple(part for part in self.parts if part.kind == KERNELS)

    @property
    def fallbacks(self) -> tuple[Part, ...]:
        """The parts that ONNX Runtime runs."""
        return tuple(part for part in self.parts if part.kind == ONNX)

    def open(self, part: Part) -> Artifact:
        """Return a part as an artifact, as it was when this was read; memory of weights is shared between parts.

        Raises:
            ArtifactError: if the part is damaged, or its weights are not there.
        """
        if part.path not in self._opened:
            with damage_reported(self.path / MANIFEST):
                assert part.source is not None
                weights = self._weights  # of all parts, with the first that is opened
                opened = part.source.open(tuple(weights[number] for number in part.weights))
                self._opened[part.path] = replace(opened, live=part.live)
        return self._opened[part.path]

    @cached_property
    def _opened(self) -> dict[Path, Artifact]:
        return {}

    @cached_property
    def _weights(self) -> Weights:
        return read_weights(self.path / WEIGHTS, self.entries)


def one_part(artifact: Artifact) -> Composite:
    """Return an artifact of kernels with an ``interface`` as one of a single set of shapes, which is open already."""
    assert artifact.interface is not None
    inputs, outputs = (
        tuple(OpenSpec(spec.name, spec.shape, spec.dtype) for spec in specs)
        for specs in (artifact.inputs, artifact.outputs)
    )
    part = Part(artifact.path, KERNELS, inputs, outputs, (), (), artifact.target.threads, artifact.source)
    composite = Composite(artifact.path, SHAPES, artifact.interface, (part,), artifact.provenance, ())
    composite._opened[part.path] = artifact
    return composite


def model_of(tuned: Path) -> Path:
    """Return where the ONNX file lies that a tuned segment was made from: beside it."""
    return tuned.with_name(f"{tuned.name}.onnx")


def part_name(number: int, kind: str) -> str:
    """File name of a part in its artifact."""
    return f"part-{number}" if kind == KERNELS else f"fallback-{number}.onnx"


def extract_part(part: Path, out: Path) -> None:
    """Put the tuned part in the folder ``part`` at ``out``, as the artifact that it was before it became a part.

    Raises:
        ArtifactError: if a file is missing or was changed.
    """
    weights = read_artifact(part).weights
    shutil.copytree(part, out)
    write_weights(out / WEIGHTS, weights)


def read_composite(path: Path) -> Composite:
    """Open and check the artifact in parts at ``path``; kernels are opened later, also if it was replaced meanwhile.

    Raises:
        ArtifactError: if a file is missing or was changed, a value is read that nothing made before, or a fallback
            partition keeps data in other files.
    """
    data = read_manifest(path, (SHAPES, SEGMENTS))
    check_files(path, data)
    with damage_reported(path / MANIFEST):
        composite = Composite(
            path,
            data["kind"],
            Interface.from_data(data["interface"]),
            tuple(_read_part(path, item) for item in data["parts"]),
            dict(data["provenance"]),
            data["weights"],
            str(data.get("other_sizes", "")),
        )
        if composite.kind == SEGMENTS:
            _check_values(composite)
        return composite


def _read_part(path: Path, data: Mapping[str, Any]) -> Part:
    place, numbers = part_path(path, data), tuple(int(number) for number in data["weights"])
    if data["kind"] == ONNX:
        from autotune.artifact.fallback_file import read_fallback  # loads ONNX, which nothing else of an artifact needs

        interface, operators = read_fallback(place)
        return Part(place, ONNX, interface.inputs, interface.outputs, operators, numbers)
    source = hold_part(place)
    own = source.manifest
    inputs, outputs = (decode(tuple[OpenSpec, ...], own[field]) for field in ("inputs", "outputs"))
    live = _live_sizes(data["live"]) if data.get("live") else None
    latency_ms = own["provenance"].get("latency_ms", {}).get("tuned")
    timed = float(latency_ms) if latency_ms else None
    return Part(place, KERNELS, inputs, outputs, (), numbers, int(own["target"]["threads"]), source, live, timed)


def _live_sizes(data: Mapping[str, Any]) -> LiveSizes:
    """The value that ``write_composite`` wrote; 0.4.0 and older wrote what one size leaves out.

    Raises:
        ArtifactError: if it has more sizes than a core of this version knows.
    """
    if "sizes" in data:
        live = decode(LiveSizes, data)
        if len(live.sizes) > MOST_LIVE:
            raise ArtifactError(
                f"the artifact leaves out rows of {len(live.sizes)} open sizes, and this version {MOST_LIVE} at most; "
                "upgrade tune-compiler, or build the artifact again"
            )
        return live
    one = {name: value for name, value in data.items() if name != "seconds"}
    return decode(LiveSizes, {"sizes": [one], "seconds": data.get("seconds", ())})


def _check_values(composite: Composite) -> None:
    """Check that every segment has the values that it reads, and that the outputs are made.

    Raises:
        ArtifactError: if one is not.
    """
    available = {spec.name for spec in composite.interface.inputs}
    for part in composite.parts:
        missing = next((spec.name for spec in part.inputs if spec.name not in available), None)
        if missing is not None:
            raise ArtifactError(f"{part.path} reads {missing!r}, which nothing before it makes; build it again")
        available.update(spec.name for spec in part.outputs)
    for spec in composite.interface.outputs:
        if spec.name not in available:
            raise ArtifactError(f"nothing in {composite.path} makes its output {spec.name!r}; build the artifact again")


def write_composite(
    out: Path,
    kind: str,
    parts: Sequence[Path],
    interface: Interface,
    provenance: Mapping[str, Any],
    live: Mapping[int, LiveSizes] = MappingProxyType({}),
    model: Path | None = None,
) -> None:
    """Put ``parts`` into one artifact at ``out``; they are left as they are.

    Args:
        kind: ``shapes`` or ``segments``.
        parts: artifacts of kernels without a frame, and ONNX files of fallback partitions; a tuned segment with its
            model beside it (``model_of``).
        live: number of a part → what of it may be left out for smaller sizes.
        model: an ONNX file without data in others, for sizes that no part serves; None to refuse such calls.

    Raises:
        ArtifactError: if the folder cannot be written, or ``out`` exists and is not an artifact.
        OneSetError: if a part has a frame.
    """
    if any(part.is_dir() and read_manifest(part).get("frame") for part in parts):
        raise OneSetError(f"{out}: {ONE_SET}")
    with new_artifact(out) as folder:
        shared = SharedWeights()
        entries = [_add(part, folder, number, shared) for number, part in enumerate(parts)]
        for number, rows in live.items():
            entries[number]["live"] = encode(rows)
        weights = write_weights(folder / WEIGHTS, shared.arrays)
        fields = {
            "sha256": {WEIGHTS: digest_of(folder / WEIGHTS)},
            "inputs": encode(interface.inputs),
            "outputs": encode(interface.outputs),
            "interface": interface.to_data(),
            "parts": entries,
            "weights": weights,
            "provenance": dict(provenance),
        }
        if model is not None:
            shutil.copyfile(model, folder / MODEL)
            fields["other_sizes"] = sha256(folder / MODEL)
        write_manifest(folder, kind, fields)


def _add(part: Path, folder: Path, number: int, shared: SharedWeights) -> dict[str, Any]:
    """Copy a part into ``folder``; its entry in the manifest."""
    if part.is_file():
        place = folder / part_name(number, ONNX)
        shutil.copyfile(part, place)
        return {"path": place.name, "kind": ONNX, "identity": sha256(place), "weights": []}
    place = folder / part_name(number, KERNELS)
    shutil.copytree(part, place, ignore=shutil.ignore_patterns(WEIGHTS))
    if model_of(part).is_file():
        shutil.copyfile(model_of(part), model_of(place))
    return {**kernels_part(place), "weights": shared.add(read_artifact(part).weights)}
