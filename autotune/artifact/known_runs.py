"""Results of earlier runs on this machine, so that a run that would repeat one is skipped.

A run is kept by everything that decides what it does: the bytes of its models, the options, the target, this program's
sources, the packages that it runs on, and the address of the log. Beside what the run brought, the note of it has what
has to be as it was for the same to come out again: the models' own data files, the artifacts, and the log's records of
the models' kernels. Notes lie in the user's cache folder; a missing, damaged or outdated one costs a run, no more.
"""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from autotune.artifact.manifest import check_files, read_manifest, sha256
from autotune.artifact.plain_data import decode, encode
from autotune.host.shared_files import private_folder, read_private
from autotune.measure.code_cache import key_of, source_digest
from autotune.options import Options, cache_folder
from autotune.versions import SHOWN, installed
from schedules.target import Target
from schedules.vocabulary.bounded import DAMAGE, parsed_json
from schedules.vocabulary.errors import ArtifactError, AutotuneError
from tuning_logs.durable import write_file

ROOMS = ("autotune", "search", "costmodels", "schedules", "tuning_logs")
"""Folders of this program's sources, beside each other."""

UNIMPORTANT = ("target", "isa", "threads", "peer")
"""Options that a key leaves out: what they decide is in the target, or it is only shown."""

MOST_NOTES = 256
"""Notes that are kept, the newest; one takes some 10 KB. Heuristic, not measured."""

MOST_LOG_BYTES = 32 << 20
"""Bytes of a log that is known by its hash; of a larger one the records are looked up, which loads SQLAlchemy. Hashing
so many takes 40 ms, loading that 370 ms (Ice Lake, 2 cores)."""

NOT_BUILT = ("attached", "seal", "provenance")
"""Fields of a manifest that may change without a build: benchmarks and histories are attached later."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogView:
    """The records that a run read: those of ``tasks`` on ``targets`` (fingerprints).

    Attributes:
        state: what ``TuningLog.state`` said of them.
    """

    tasks: tuple[str, ...]
    targets: tuple[str, ...]
    state: str


@dataclass(frozen=True)
class RunNote:
    """The result of a run.

    Attributes:
        result: as plain data.
        artifacts: the artifacts' absolute paths, and the hashes of what was built.
        files: absolute paths and hashes of the files that the models keep their tensors in.
        views: of the log when it had everything that the artifacts are made of.
        log: hash of the log's bytes at that time (``log_bytes``); empty where it is not known.
    """

    result: Any
    artifacts: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    views: tuple[LogView, ...]
    log: str = ""


def run_key(models: Sequence[Path], options: Options, target: Target, log: str) -> str | None:
    """The key of a run; None if a model cannot be read.

    Args:
        log: the log's address, absolute.
    """
    chosen = {field.name: getattr(options, field.name) for field in fields(options) if field.name not in UNIMPORTANT}
    chosen |= {"out": str(Path(options.out or "").absolute()), "log": log}
    sources = [source_digest(Path(__file__).parents[2] / room) for room in ROOMS]
    versions = [platform.python_version(), *(f"{name} {installed(name)}" for name in SHOWN)]
    try:
        read = [f"{path.absolute()} {sha256(path)}" for path in models if path.is_file()]
    except OSError:
        return None
    if len(read) < len(models):
        return None
    return key_of([json.dumps(chosen, default=str, sort_keys=True), target.to_json(), *sources, *versions, *read])


def artifact_state(path: Path) -> str:
    """Hash of what was built into the artifact at ``path``, whose files are checked.

    Raises:
        ArtifactError: if it is damaged.
    """
    manifest = read_manifest(path)
    check_files(path, manifest)
    built = {name: value for name, value in manifest.items() if name not in NOT_BUILT}
    return key_of([json.dumps(built, sort_keys=True)])


def is_unchanged(note: RunNote) -> bool:
    """Return whether the artifacts and the models' data files are what they were."""
    try:
        return all(artifact_state(Path(path)) == state for path, state in note.artifacts) and all(
            sha256(Path(path)) == digest for path, digest in note.files
        )
    except (ArtifactError, OSError) as error:
        logger.debug("a known run cannot be taken for done: %s", error)
        return False


def log_bytes(address: str | Path) -> str:
    """Hash of the log at ``address``; empty for a database elsewhere, a large file, and one that is being written."""
    path, waiting = Path(address), Path(f"{address}-wal")
    try:
        if path.stat().st_size > MOST_LOG_BYTES or (waiting.exists() and waiting.stat().st_size):
            return ""
        return sha256(path)
    except OSError:
        return ""


def read_note(key: str) -> RunNote | None:
    """The note under ``key``, or None."""
    try:
        return decode(RunNote, parsed_json(read_private(_place(key))))
    except (*DAMAGE, AutotuneError) as error:
        logger.debug("no note of this run: %s", error)
        return None


def write_note(key: str, note: RunNote) -> None:
    """Keep ``note``, and the newest others. A folder that cannot be written is no error."""
    place = _place(key)
    try:
        private_folder(place.parent)
        write_file(place, json.dumps(encode(note)).encode(), mode=0o600)
        notes = sorted(place.parent.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for old in notes[MOST_NOTES:]:
            old.unlink(missing_ok=True)
    except OSError as error:
        logger.debug("%s cannot be written: %s", place, error)


def _place(key: str) -> Path:
    return cache_folder() / "runs" / f"{key}.json"
