"""Places of the models that artifacts of this machine were built from.

An artifact holds its model's name and hash and no path, so that it can be given away. This machine's paths are kept in
the user's cache folder: one file per model, named by the hash of the model's file, which holds the path.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from autotune.artifact.manifest import read_manifest
from autotune.host.shared_files import private_folder, read_private
from autotune.options import cache_folder
from tuning_logs.durable import write_file

logger = logging.getLogger(__name__)


def remember_model(artifact: Path, model: Path) -> None:
    """Note that ``artifact`` was built from the ONNX file ``model``. A folder that cannot be written is no error.

    Raises:
        ArtifactError: if ``artifact`` is none.
    """
    place = _place(str(read_manifest(artifact)["provenance"]["sha256"]))
    try:
        private_folder(place.parent)
        write_file(place, os.fsencode(model.resolve()), mode=0o600)
    except OSError as error:
        logger.debug("%s cannot be written (%s); 'tune bench' will look for %s by name", place, error, model.name)


def remembered_model(digest: str) -> Path | None:
    """The path of the model whose file had the hash ``digest``, or None; the file may be gone or changed since."""
    try:
        return Path(os.fsdecode(read_private(_place(digest))))
    except OSError:
        return None


def _place(digest: str) -> Path:
    return cache_folder() / "models" / digest
