"""The manifest of an artifact: one format, sealed, with the hash of every file that was built.

An artifact is a directory with a ``manifest.json`` of one of three kinds:

    kernels     compiled kernels of a model for one set of input shapes (``directory.py``)
    shapes      one artifact of kernels per set of input shapes (``composite.py``)
    segments    a model cut into segments that run one after the other: artifacts of kernels, and ONNX files that
                ONNX Runtime runs (``composite.py``)

Fields of every kind:

    format      number of this layout
    kind        as above
    sha256      file → hash (``digest_of``) of what the artifact was built with; two hashes with a space between while
                a file is being replaced
    attached    file → hash; what was added later and is not needed to run
    inputs, outputs
                name, shape and dtype of each; a size that is open has a name, one that depends on data is ``?``
    frame       of kernels: what is done on the host around them (``autotune/frame``); null where that is nothing
    interface   of kernels: the open inputs and outputs, where any batch is answered row by row; else null or missing
    caches      of kernels: inputs that they append to, and the outputs that these are (``interface.Cache``)
    parts       artifacts and ONNX files in this directory: ``path``, ``kind`` (``kernels`` or ``onnx``), ``identity``
    cpu         of kernels for a CPU: features that the code may use, by the Linux kernel's names
    weights     where every weight lies in ``weights.bin``
    provenance  where the artifact comes from
    seal        hash of the manifest's own text
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from autotune.artifact.replacement import MANIFEST as MANIFEST
from autotune.artifact.replacement import changing, put_back
from autotune.host.pages import mapped_file
from schedules.vocabulary.bounded import DAMAGE, MOST_DEPTH, parsed_json
from schedules.vocabulary.errors import ArtifactError, UsageError, first_line
from tuning_logs.durable import write_file

FORMAT = 6
"""Version 0.1.0 wrote the formats 1 to 3; 4 needed TVM to run; 5 had a weaker hash of its weights and no list of CPU
features. They are refused: ``tune build`` renews an artifact from the log."""

WEIGHTS = "weights.bin"

INTERFACE = "interface"
"""Field of the inputs and outputs with open sizes; of kernels null if they answer their own batch alone."""

KERNELS, SHAPES, SEGMENTS = "kernels", "shapes", "segments"
KINDS = {
    KERNELS: "holds kernels for one set of shapes",
    SHAPES: "has parts for several sets of shapes or numbers of threads",
    SEGMENTS: "has fallback partitions",
}
"""Kind of an artifact → what to say of one where another kind is needed."""

ONNX = "onnx"
"""Kind of a part that is an ONNX file."""

THREADS = "threads"
"""Key of the provenance of an artifact without kernels of its own: the threads that ONNX Runtime runs it on."""

STREAMS, AUTO = "streams", "auto"
"""Field of the provenance: number of streams that an artifact was tuned for, or ``AUTO`` for as many as there are cores
for. Where it is missing, requests run one after the other on all cores."""

BENCH = "bench.json"
"""The attachment that keeps the last ``tune bench`` of an artifact."""

ABSENT = "absent"
"""Stands for the hash of the earlier file while a file is attached for the first time."""

CACHES = "caches"
"""Field of the provenance: number of caches that kernels write in place."""

UNSEALED = "0" * 64
_FILE_NAME = re.compile(r"\w[\w.-]*")


def sha256(path: Path) -> str:
    """Hash of a file's bytes, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_of(path: Path, content: NDArray[np.uint8] | None = None) -> str:
    """Hash of a file of an artifact, hex: ``sha256``, but of weights XXH3 of 128 bits.

    Args:
        content: the weights where they were read before.

    Weights may be gigabytes, and every session checks them. XXH3 hashes 29 GB/s on a Zen 4, BLAKE3 5 GB/s on two
    threads and SHA-256 1.7 GB/s. It finds every accident, and none of the three stops an author of artifacts, who can
    write the manifest too.
    """
    if path.name != WEIGHTS or not path.stat().st_size:
        return sha256(path)
    return xxhash.xxh3_128_hexdigest((mapped_file(path) if content is None else content).data)


def check_file(path: Path, digest: str, content: NDArray[np.uint8] | None = None) -> None:
    """Check that a file is the one that was built.

    Args:
        digest: its hash, or two with a space between: what it is being replaced by, too.
        content: as for ``digest_of``.

    Raises:
        ArtifactError: if it is missing or its hash is not ``digest``.
    """
    if not path.is_file():
        raise ArtifactError(f"{path} is missing; build the artifact again")
    if digest_of(path, content) not in digest.split():
        raise ArtifactError(f"{path} was changed after it was built (its hash differs); build the artifact again")


@contextmanager
def damage_reported(file: Path) -> Iterator[None]:
    """Report whatever reading ``file`` raises as one sentence.

    Raises:
        ArtifactError: if the block raises what damaged data leads to.
    """
    try:
        yield
    except (*DAMAGE, UsageError) as error:
        reason = f"it has no {first_line(error)}" if isinstance(error, KeyError) else first_line(error)
        raise ArtifactError(f"{file} is damaged ({reason}); build the artifact again") from error


def sealed(manifest: Mapping[str, Any]) -> str:
    """A manifest as text; its ``seal`` is the hash of that very text with zeros in place of the seal."""
    text = json.dumps({**manifest, "seal": UNSEALED}, indent=1)
    return text.replace(UNSEALED, hashlib.sha256(text.encode()).hexdigest(), 1)


def write_manifest(folder: Path, kind: str, fields: Mapping[str, Any]) -> None:
    """Write the manifest of a new artifact.

    Args:
        fields: all but ``format``, ``kind``, ``attached`` and ``seal``.
    """
    text = sealed({"format": FORMAT, "kind": kind, "attached": {}, **fields})
    (folder / MANIFEST).write_text(text)


def read_manifest(path: Path, kinds: Collection[str] = tuple(KINDS)) -> dict[str, Any]:
    """The manifest of the artifact at ``path``.

    Args:
        kinds: what the artifact may be.

    Raises:
        ArtifactError: if there is none, it was changed, or it is of another format or kind.
    """
    manifest = path / MANIFEST
    if not manifest.is_file() and not put_back(path):
        raise ArtifactError(f"{path} is not an artifact (no {MANIFEST}); make one with 'tune run MODEL'")
    with damage_reported(manifest):
        text = manifest.read_text()
        data: dict[str, Any] = parsed_json(text, MOST_DEPTH)
        version = data["format"]
        if version != FORMAT:
            raise ArtifactError(
                f"{path} has format {first_line(version, 20)} and this program reads {FORMAT}; "
                f"renew it with 'tune build MODEL --out {path}', which measures nothing"
            )
        seal = str(data["seal"])
        if seal != hashlib.sha256(text.replace(seal, UNSEALED, 1).encode()).hexdigest():
            raise ArtifactError(
                f"{manifest} was changed after it was built (its hash differs); build the artifact again"
            )
        if data["kind"] not in kinds:
            parts = [path / part["path"] for part in data["parts"] if part["kind"] == KERNELS]
            named = f"name one of its parts, such as {parts[0]}" if parts else "name another"
            raise ArtifactError(f"{path} {KINDS[data['kind']]}; {named}")
    return data


def kind_of(path: Path) -> str:
    """Kind of the artifact at ``path``; ``kernels`` where it cannot be read: the reader of that kind says why."""
    try:
        return str(read_manifest(path)["kind"])
    except ArtifactError:
        return KERNELS


def only_part(path: Path) -> Path:
    """The part with the kernels of an artifact for a single set of shapes and number of threads; else ``path``.

    Raises:
        ArtifactError: if that part lies elsewhere, or the manifest does not list parts.
    """
    try:
        data = read_manifest(path, (SHAPES,))
    except ArtifactError:  # another kind, or damaged: the reader says why
        return path
    with damage_reported(path / MANIFEST):
        parts = [part_path(path, part) for part in data["parts"]]
    return parts[0] if len(parts) == 1 else path


def check_files(path: Path, manifest: Mapping[str, Any], without: Collection[str] = ()) -> None:
    """Check the files of the artifact at ``path``, and those of its parts.

    A part may have been annotated since, so it is known by its ``identity``, and its files by its own manifest. Where
    a part names numbers of the whole's weights it has no ``weights.bin``.

    Args:
        without: files that are elsewhere.

    Raises:
        ArtifactError: if a file is missing or was changed, or a part is another than the one that was built.
    """
    with damage_reported(path / MANIFEST):
        for name, digest in manifest["sha256"].items():
            if name not in without:
                check_file(path / name, digest)
        for part in manifest["parts"]:
            place = part_path(path, part)
            if part["kind"] == ONNX:
                check_file(place, part["identity"])
                continue
            data = read_manifest(place, (KERNELS,))
            if data["identity"] != part["identity"]:
                raise ArtifactError(
                    f"{place} is another artifact than the one that was built; build the artifact again"
                )
            check_files(place, data, (WEIGHTS,) if "weights" in part else ())


def part_path(path: Path, part: Mapping[str, Any]) -> Path:
    """Return where a part lies, which has to be in this artifact: a manifest from elsewhere could name any file.

    Raises:
        ArtifactError: if it is not.
    """
    name = str(part["path"])
    if not _FILE_NAME.fullmatch(name):
        raise ArtifactError(f"{path / MANIFEST} names a part {name!r} outside of the artifact; build it again")
    return path / name


def annotate(path: Path, provenance: Mapping[str, Any]) -> None:
    """Add to the provenance of the artifact at ``path``.

    Raises:
        ArtifactError: if it cannot be written.
    """
    with changing(path) as folder:
        data = read_manifest(folder)
        _write(folder, {**data, "provenance": {**data["provenance"], **provenance}})


def replace_field(path: Path, name: str, value: Any) -> None:
    """Give a field of the manifest of the artifact at ``path``, which no hash covers, another value.

    Raises:
        ArtifactError: if it cannot be written.
    """
    with changing(path) as folder:
        _write(folder, {**read_manifest(folder), name: value})


def attach(path: Path, name: str, content: bytes) -> None:
    """Add the file ``name`` to the artifact at ``path``, or replace it; the manifest has its hash.

    While the file changes, the manifest has the hash from before and the new one: at every moment, a power cut's too,
    the file is one that the manifest knows.

    Raises:
        ArtifactError: if it cannot be written.
    """
    with changing(path) as folder:
        data = read_manifest(folder)
        field = "sha256" if name in data["sha256"] else "attached"
        digest = hashlib.sha256(content).hexdigest()
        _write(folder, {**data, field: {**data[field], name: f"{data[field].get(name, ABSENT)} {digest}"}})
        write_file(folder / name, content)
        _write(folder, {**data, field: {**data[field], name: digest}})


def _write(folder: Path, manifest: Mapping[str, Any]) -> None:
    write_file(folder / MANIFEST, sealed(manifest).encode())


def attachment(path: Path, name: str) -> bytes | None:
    """Return the value that ``attach`` added under ``name``, or None if there is none.

    Raises:
        ArtifactError: if the file is gone or was changed since.
    """
    digests = str(read_manifest(path)["attached"].get(name, "")).split()
    if not digests:
        return None
    content = (path / name).read_bytes() if (path / name).is_file() else None
    if content is None and ABSENT in digests:
        return None
    if content is None or hashlib.sha256(content).hexdigest() not in digests:
        raise ArtifactError(
            f"{path / name} was lost or changed after it was written; run 'tune run' or 'tune bench' again"
        )
    return content
