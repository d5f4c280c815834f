"""An artifact with islands: segments of a model that run one after the other, some of them on ONNX Runtime.

    manifest.json    format 3: inputs and outputs, the segments in order, sha256 of every island
    part-0/ …        tuned segments, artifacts of format 1
    part-0.onnx …    the models that they were tuned from, for ``tune verify``, ``bench`` and ``tasks``; not needed to
                     run, so their hashes are looked at by those who read them (provenance of the segment's manifest)
    island-1.onnx …  segments that ONNX Runtime runs, because TVM cannot express an operator of theirs

Values pass between segments by name. ``tune run --fallback onnxruntime`` makes one, and only where it has to.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import uses_external_data

from autotune.artifact.directory import ISLANDS, check_file, read_manifest, scratch_beside, seal, sha256, writing
from autotune.artifact.manifest import has_format, read_sealed
from autotune.importer.onnx_model.graph_walk import walk_tensors
from autotune.importer.onnx_model.shapes import true_inputs
from schedules.errors import ArtifactError

Value = dict[str, Any]
"""``name``, ``dtype`` and ``shape`` of an input or output; a size that is not known beforehand is None."""


@dataclass(frozen=True)
class Link:
    """One segment of a chain.

    Attributes:
        path: an artifact's folder, or an island's ONNX file.
        island: whether ONNX Runtime runs it.
        operators: kinds of its nodes; empty for tuned segments.
    """

    path: Path
    island: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chain:
    """A checked chain."""

    path: Path
    links: tuple[Link, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    provenance: Mapping[str, Any]

    @property
    def islands(self) -> tuple[Link, ...]:
        """What ONNX Runtime runs."""
        return tuple(link for link in self.links if link.island)

    @property
    def tuned(self) -> tuple[Link, ...]:
        """What tuned kernels run."""
        return tuple(link for link in self.links if not link.island)


def is_chain(path: Path) -> bool:
    """Whether there is a chain at ``path``; False for whatever is damaged, which readers complain about."""
    return has_format(path, ISLANDS)


def read_chain(path: Path) -> Chain:
    """Open and check the chain at ``path``.

    Raises:
        ArtifactError: if a file is missing or was changed, a value is read that nothing made before, or an island
            keeps data in other files.
    """
    data = read_sealed(path)
    try:
        links = tuple(
            Link(
                path / _own(number, link),
                bool(link["island"]),
                tuple(link["inputs"]),
                tuple(link["outputs"]),
                tuple(link["operators"]),
            )
            for number, link in enumerate(data["links"])
        )
        for link, told in zip(links, data["links"], strict=True):
            _check(link, str(told["identity"]))
        chain = Chain(path, links, tuple(data["inputs"]), tuple(data["outputs"]), dict(data["provenance"]))
        _check_values(chain)
        return chain
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path / 'manifest.json'} is damaged ({error!r}); build the artifact again") from error


def segment_name(number: int, island: bool) -> str:
    """Where a segment lies in its artifact."""
    return f"island-{number}.onnx" if island else f"part-{number}"


def model_of(tuned: Path) -> Path:
    """Where the ONNX file lies that a tuned segment was made from: beside it."""
    return tuned.with_name(f"{tuned.name}.onnx")


def _own(number: int, link: Mapping[str, Any]) -> str:
    """The segment's place, which has to be in this artifact: a manifest from elsewhere could name any file."""
    name = segment_name(number, bool(link["island"]))
    if link["path"] != name:
        raise ValueError(f"segment {number} is at {link['path']!r}, not {name!r}")
    return name


def _check(link: Link, identity: str) -> None:
    """Whether a segment is the one that was built; a tuned one checks its own files when it is opened."""
    if link.island:
        check_file(link.path, identity)
    elif read_manifest(link.path)["identity"] != identity:
        raise ArtifactError(f"{link.path} is another artifact than the one that was built; build the artifact again")


def _check_values(chain: Chain) -> None:
    """Whether every segment has the values that it reads, and makes those that others read."""
    made = {value["name"] for value in chain.inputs}
    for link in chain.links:
        inputs, outputs = _island_values(link.path) if link.island else _tuned_values(link.path)
        missing = next((name for name in link.inputs if name not in made), None)
        if missing is not None:
            raise ArtifactError(f"{link.path} reads {missing!r}, which nothing before it makes; build it again")
        if set(link.inputs) != inputs or not set(link.outputs) <= outputs:
            raise ArtifactError(f"{link.path} has other inputs or outputs than {chain.path} says; build it again")
        made.update(link.outputs)
    for value in chain.outputs:
        if value["name"] not in made:
            raise ArtifactError(f"nothing in {chain.path} makes its output {value['name']!r}; build the artifact again")


def _tuned_values(path: Path) -> tuple[set[str], set[str]]:
    """Names of a tuned segment's inputs and outputs."""
    data = read_manifest(path)
    return {spec["name"] for spec in data["inputs"]}, {spec["name"] for spec in data["outputs"]}


def _island_values(path: Path) -> tuple[set[str], set[str]]:
    """Names of an island's inputs and outputs; one with data in other files is refused: it could name any file."""
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise ArtifactError(f"{path} is no ONNX file; build the artifact again") from error
    outside = next((tensor.name for tensor in walk_tensors(model) if uses_external_data(tensor)), None)
    if outside is not None:
        raise ArtifactError(f"{path} has data in another file (tensor {outside!r}); build the artifact again")
    return {value.name for value in true_inputs(model.graph)}, {value.name for value in model.graph.output}


def write_chain(out: Path, model: onnx.ModelProto, links: Sequence[Link], provenance: Mapping[str, Any]) -> None:
    """Put the segments into one artifact at ``out``; they are left as they are.

    Args:
        model: whose inputs and outputs are the chain's.
        links: segments wherever they lie now; a tuned one with its model beside it (``model_of``).

    Raises:
        ArtifactError: if the folder cannot be written, or ``out`` exists and is not an artifact.
    """
    with scratch_beside(out) as folder, writing(out):
        told = []
        for number, link in enumerate(links):
            name = segment_name(number, link.island)
            if link.island:
                shutil.copyfile(link.path, folder / name)
                identity = sha256(link.path)
            else:
                shutil.copytree(link.path, folder / name)
                shutil.copyfile(model_of(link.path), model_of(folder / name))
                identity = str(read_manifest(link.path)["identity"])
            told.append(
                {
                    "path": name,
                    "island": link.island,
                    "inputs": list(link.inputs),
                    "outputs": list(link.outputs),
                    "operators": list(link.operators),
                    "identity": identity,
                }
            )
        weights = {tensor.name for tensor in model.graph.initializer}
        manifest = {
            "format": ISLANDS,
            "inputs": [_value(value) for value in model.graph.input if value.name not in weights],
            "outputs": [_value(value) for value in model.graph.output],
            "links": told,
            "provenance": dict(provenance),
        }
        seal(folder, manifest, out)


def _value(value: onnx.ValueInfoProto) -> Value:
    tensor = value.type.tensor_type
    dims = tensor.shape.dim
    return {
        "name": value.name,
        "dtype": str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)),
        "shape": [dim.dim_value if dim.HasField("dim_value") else None for dim in dims],
    }
