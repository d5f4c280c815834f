"""One artifact of several specialisations: the same model for several sets of input shapes.

    manifest.json   format 2: inputs and outputs with names for open sizes, the parts, what may be padded or split,
                    sha256 of weights.bin; every part's own manifest has those of its files
    weights.bin     every weight once, in whatever forms the parts' kernels want it
    part-0/ …       one artifact per set of shapes, as of format 1, without its weights.bin

An artifact of one set stays what it was, format 1.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.artifact.directory import (
    SEVERAL,
    Artifact,
    check_file,
    read_artifact,
    read_manifest,
    read_weights,
    scratch_beside,
    seal,
    sha256,
    write_weights,
    writing,
)
from autotune.artifact.manifest import has_format, read_sealed
from autotune.importer.onnx_model.open_axes import Interface
from schedules.errors import ArtifactError

WEIGHTS = "weights.bin"

Array = NDArray[Any]


@dataclass(frozen=True)
class Part:
    """One specialisation.

    Attributes:
        shapes: of the inputs, by name.
        weights: which of the bundle's weights are its own, in its order.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    weights: tuple[int, ...]


class Bundle:
    """A checked bundle; parts are opened when they are first needed.

    Raises:
        ArtifactError: if a file is missing or was changed.
    """

    def __init__(self, path: Path) -> None:
        data = read_sealed(path)
        try:
            check_file(path / WEIGHTS, data["sha256"][WEIGHTS])
            self.path = path
            self.interface = Interface.from_data(data["interface"])
            self.provenance: dict[str, Any] = dict(data["provenance"])
            self.parts = tuple(
                Part(
                    path / f"part-{number}",
                    {name: tuple(int(size) for size in shape) for name, shape in part["shapes"].items()},
                    tuple(int(index) for index in part["weights"]),
                )
                for number, part in enumerate(data["parts"])
            )
            for part, told in zip(self.parts, data["parts"], strict=True):
                _check_part(part.path, str(told["identity"]))
            self._weights = read_weights(path / WEIGHTS, data["weights"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ArtifactError(f"{path / 'manifest.json'} is damaged ({error!r}); build the artifact again") from error

    def open(self, part: Part) -> Artifact:
        """The part as an artifact; its weights are shared with the other parts.

        Raises:
            ArtifactError: if a file is missing or was changed, or the weights of the part are not there.
        """
        try:
            return read_artifact(part.path, tuple(self._weights[index] for index in part.weights))
        except IndexError as error:
            raise ArtifactError(
                f"{self.path / 'manifest.json'} is damaged ({error}); build the artifact again"
            ) from error


def _check_part(path: Path, identity: str) -> None:
    """Whether a part is the one that was bundled; what was attached to it since (``tune bench``) may differ."""
    data = read_manifest(path)
    if data["identity"] != identity:
        raise ArtifactError(f"{path} is another artifact than the one that was built; build the artifact again")
    for name, digest in data["sha256"].items():
        if name != WEIGHTS:
            check_file(path / name, digest)


def is_bundle(path: Path) -> bool:
    """Whether there is a bundle at ``path``; False for whatever is damaged, which readers complain about."""
    return has_format(path, SEVERAL)


def parts_of(path: Path) -> list[Path]:
    """The artifacts in a bundle, or the one that is there."""
    return [part.path for part in Bundle(path).parts] if is_bundle(path) else [path]


def write_bundle(
    out: Path,
    parts: Sequence[Path],
    shapes: Sequence[Mapping[str, Sequence[int]]],
    interface: Interface,
    provenance: Mapping[str, Any],
) -> None:
    """Put the artifacts ``parts`` into one at ``out``; they are left as they are.

    Raises:
        ArtifactError: if the folder cannot be written, or ``out`` exists and is not an artifact.
    """
    with scratch_beside(out) as folder, writing(out):
        pool = _Pool()
        described = []
        for number, (part, given) in enumerate(zip(parts, shapes, strict=True)):
            artifact = read_artifact(part)
            shutil.copytree(part, folder / f"part-{number}", ignore=shutil.ignore_patterns(WEIGHTS))
            described.append(
                {
                    "shapes": {name: list(shape) for name, shape in given.items()},
                    "weights": pool.add(artifact.weights),
                    "identity": artifact.identity,
                }
            )
        entries = pool.write(folder / WEIGHTS)
        manifest = {
            "format": SEVERAL,
            "sha256": {WEIGHTS: sha256(folder / WEIGHTS)},
            "interface": interface.to_data(),
            "inputs": [asdict(spec) for spec in interface.inputs],
            "outputs": [asdict(spec) for spec in interface.outputs],
            "parts": described,
            "weights": entries,
            "provenance": dict(provenance),
        }
        seal(folder, manifest, out)


class _Pool:
    """Weights by content: what several parts have alike is kept once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._arrays: list[Array] = []

    def add(self, weights: Sequence[Array]) -> list[int]:
        """Their numbers."""
        numbers = []
        for array in weights:
            key = (str(array.dtype), array.shape, hashlib.sha256(np.ascontiguousarray(array).data).digest())
            if key not in self._numbers:
                self._numbers[key] = len(self._arrays)
                self._arrays.append(array)
            numbers.append(self._numbers[key])
        return numbers

    def write(self, path: Path) -> list[dict[str, Any]]:
        """Write them all; where each lies."""
        return write_weights(path, self._arrays)


def unpack_part(bundle: Bundle, shapes: Mapping[str, Sequence[int]], out: Path) -> bool:
    """Put the part for ``shapes`` at ``out`` as the artifact it was before it was bundled; False if there is none."""
    wanted = {name: tuple(shape) for name, shape in shapes.items()}
    part = next((part for part in bundle.parts if dict(part.shapes) == wanted), None)
    if part is None:
        return False
    shutil.copytree(part.path, out)
    artifact = bundle.open(part)
    entries = json.loads((part.path / "manifest.json").read_text())["weights"]
    with (out / WEIGHTS).open("wb") as stream:
        for entry, array in zip(entries, artifact.weights, strict=True):
            stream.write(b"\0" * (int(entry["offset"]) - stream.tell()))
            stream.write(np.ascontiguousarray(array).tobytes())
    return True


def volume(shapes: Mapping[str, Sequence[int]]) -> int:
    """Elements of all inputs: which of several parts is the smaller one."""
    return sum(math.prod(shape) for shape in shapes.values())
