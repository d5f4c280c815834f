"""Putting an artifact in its place: whole or not at all, and never over anything else."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.artifact.manifest import MANIFEST
from schedules.errors import ArtifactError


@contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """An empty folder beside ``out``, on the same file system; it is removed at the end.

    Raises:
        ArtifactError: if it cannot be made, or ``out`` exists and is not an artifact.
    """
    check_place(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))
    except OSError as error:
        raise ArtifactError(f"cannot write beside {out} ({error.strerror}); name another --out") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def new_artifact(out: Path) -> Iterator[Path]:
    """An empty folder that takes the place of ``out`` if the block ends without an error.

    Raises:
        ArtifactError: if something cannot be written, or ``out`` exists and is not an artifact.
    """
    with scratch_beside(out) as folder, _writing(out):
        yield folder
        folder.chmod(0o755)
        _swap(folder, out)


def install(path: Path, out: Path) -> None:
    """Move the artifact at ``path`` to ``out``, in place of what is there.

    Raises:
        ArtifactError: if ``out`` cannot be written, or exists and is not an artifact.
    """
    if path == out:
        return
    check_place(out)
    with _writing(out):
        _swap(path, out)


def check_place(out: Path) -> None:
    """Refuse to write over anything but an artifact or an empty folder.

    Raises:
        ArtifactError: if ``out`` is something else.
    """
    if out.exists() and not (out / MANIFEST).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise ArtifactError(f"{out} exists and is not an artifact; name another --out")


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"cannot write {out} ({error.strerror}); free some space or name another --out") from error


def _swap(folder: Path, out: Path) -> None:
    if out.exists():
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-old-", dir=out.parent))
        os.rename(out, aside / "old")
        os.rename(folder, out)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        os.rename(folder, out)
