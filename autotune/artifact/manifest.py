"""What the manifests of artifacts of several parts (``autotune/artifact/bundle.py``, ``autotune/artifact/chain.py``) have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autotune.artifact.directory import is_sealed
from schedules.errors import ArtifactError


def has_format(path: Path, number: int) -> bool:
    """Whether there is an artifact of this format at ``path``; False for what is damaged, which readers complain of."""
    try:
        return bool(json.loads((path / "manifest.json").read_text())["format"] == number)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_sealed(path: Path) -> dict[str, Any]:
    """The manifest in the folder ``path``.

    Raises:
        ArtifactError: if it cannot be read, or was changed.
    """
    manifest = path / "manifest.json"
    try:
        text = manifest.read_text()
        data: dict[str, Any] = json.loads(text)
        untouched = is_sealed(text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{manifest} is damaged ({error}); build the artifact again") from error
    if not untouched:
        raise ArtifactError(f"{manifest} was changed after it was built (its hash differs); build the artifact again")
    return data
