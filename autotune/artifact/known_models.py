"""Where the models lie that artifacts of this machine were built from.

An artifact holds its model's name and hash and no path, so that it can be given away. This machine's paths are kept in
the user's cache folder: one file per model, named by the hash of the model's file, which holds the path.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

import platformdirs

from autotune.artifact.manifest import read_manifest

logger = logging.getLogger(__name__)


def remember_model(artifact: Path, model: Path, cache: Path | None = None) -> None:
    """Note that ``artifact`` was built from the ONNX file ``model``. A folder that cannot be written is no error.

    Args:
        cache: folder to keep it in; None takes the user's cache folder.

    Raises:
        ArtifactError: if ``artifact`` is none.
    """
    place = _place(str(read_manifest(artifact)["provenance"]["sha256"]), cache)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".model-", dir=place.parent) as own:  # another process may write too
            scratch = Path(own) / place.name
            scratch.write_bytes(os.fsencode(model.resolve()))
            scratch.replace(place)
    except OSError as error:
        logger.debug("%s cannot be written (%s); 'tune bench' will look for %s by name", place, error, model.name)


def remembered_model(digest: str, cache: Path | None = None) -> Path | None:
    """The path of the model whose file had the hash ``digest``, or None; the file may be gone or changed since."""
    try:
        return Path(os.fsdecode(_place(digest, cache).read_bytes()))
    except OSError:
        return None


def _place(digest: str, cache: Path | None) -> Path:
    return (cache or platformdirs.user_cache_path("tune-compiler")) / "models" / digest
