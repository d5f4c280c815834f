"""The cache of a model that a session tunes: the artifact, and the choices of earlier sessions."""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.artifact.manifest import sha256
from autotune.host.machine import host_target
from autotune.host.shared_files import private_folder, read_private
from autotune.interface import Interface, OpenSpec
from autotune.options import cache_folder
from autotune.versions import DISTRIBUTION, installed
from schedules.vocabulary.bounded import parsed_json
from schedules.vocabulary.errors import AutotuneError
from tuning_logs.durable import write_file

Specs = tuple[OpenSpec, ...]

logger = logging.getLogger(__name__)


LOCATION = b"location"
"""Bytes that stand in every model that keeps tensors in other files."""


class ModelCache:
    """The folder of one model, keyed by the hashes of its files, this machine, the threads and this version.

    Raises:
        ModelError: if the model cannot be read.
    """

    def __init__(self, model: Path, threads: int) -> None:
        hashes = [sha256(file) for file in (model, *_data_files(model))]
        target = host_target(threads).fingerprint
        key = hashlib.sha256("\0".join([*hashes, target, installed(DISTRIBUTION) or ""]).encode()).hexdigest()
        self.digest = hashes[0]
        self.folder = cache_folder() / "adaptive" / key

    @property
    def artifact(self) -> Path:
        """The path of the artifact."""
        return self.folder / "model.tuned"

    def make(self) -> None:
        """Make the folder.

        Raises:
            OSError: if it cannot be made or written.
        """
        private_folder(self.folder)
        write_file(self.folder / "used", b"", durable=False, mode=0o600)

    def read_specs(self) -> tuple[Specs, Specs] | None:
        """Inputs and outputs of the model, as ``write_specs`` kept them; None where there are none."""
        data = self._read("interface.json")
        try:
            interface = Interface.from_data({**data, "scale": [], "padded": [], "split": []})
        except (TypeError, ValueError, KeyError, AttributeError):
            return None
        return interface.inputs, interface.outputs

    def write_specs(self, inputs: Specs, outputs: Specs) -> None:
        """Keep the inputs and outputs. A folder that cannot be written is no error."""
        data = Interface(inputs, outputs, {}).to_data()
        self._write("interface.json", {name: data[name] for name in ("inputs", "outputs")})

    def read_routes(self, seal: str) -> object:
        """The choices of engines that were made with the artifact of this seal; None where there are none."""
        data = self._read("routes.json")
        return data.get("routes") if isinstance(data, dict) and data.get("seal") == seal else None

    def write_routes(self, seal: str, routes: Sequence[Any]) -> None:
        """Keep the choices of engines. A folder that cannot be written is no error."""
        self._write("routes.json", {"seal": seal, "routes": list(routes)})

    def _read(self, name: str) -> Any:
        try:
            return parsed_json(read_private(self.folder / name))
        except (OSError, ValueError, AutotuneError):
            return None

    def _write(self, name: str, data: object) -> None:
        try:
            write_file(self.folder / name, json.dumps(data).encode(), durable=False, mode=0o600)
        except OSError as error:
            logger.debug("%s cannot be written: %s", self.folder / name, error)


def _data_files(model: Path) -> Sequence[Path]:
    """The files beside the model that it keeps its tensors in."""
    if not model.stat().st_size:
        return ()
    with model.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(LOCATION) < 0:
            return ()
    from autotune.importer.import_worker import external_files  # loads ONNX

    return external_files(model)
