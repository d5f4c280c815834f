"""``weights.bin``: a model's weights one after the other, each aligned for kernels."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.artifact.manifest import check_file
from autotune.host.pages import ALIGNMENT, mapped_file, paged
from schedules.vocabulary.errors import ArtifactError

Array = NDArray[Any]
Entry = dict[str, Any]
"""The place of a weight, as in the manifest: ``offset`` in bytes, ``shape`` and ``dtype``."""

MAPPED_BYTES = 128 << 20
"""Size of a file from which it is mapped, so that processes share its memory, instead of read into huge pages of this
process's own. Between the two that were timed on a two-core Zen 4, mapped against read: 10 MB (SqueezeNet) ran 1 to 2 %
slower, 736 MB (VGG-19) 0.5 % slower and opened in a sixteenth of the time."""


def write_weights(path: Path, weights: Sequence[Array]) -> list[Entry]:
    """Write all of ``weights``, each at a multiple of ``ALIGNMENT`` bytes; where each lies."""
    entries = []
    with path.open("wb") as stream:
        for array in weights:
            stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
            entries.append({"offset": stream.tell(), "shape": list(array.shape), "dtype": str(array.dtype)})
            stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return entries


def read_weights(path: Path, entries: Sequence[Entry], digest: str = "") -> tuple[Array, ...]:
    """Inverse of ``write_weights``. A large file's memory is shared by all processes that read it.

    Args:
        digest: as for ``check_file``; "" if the file was checked before. The bytes that are checked are returned.

    Raises:
        ArtifactError: if the file is too short, or is not the one of ``digest``.
    """
    if digest and not (entries and path.is_file()):
        check_file(path, digest)
    if not entries:
        return ()
    memory = mapped_file(path) if path.stat().st_size >= MAPPED_BYTES else _read_file(path)
    if digest:
        check_file(path, digest, memory)
    arrays = []
    for entry in entries:
        shape, dtype = tuple(int(x) for x in entry["shape"]), np.dtype(entry["dtype"])
        start = int(entry["offset"])
        stop = start + math.prod(shape) * dtype.itemsize
        if start < 0 or stop > memory.size:
            raise ArtifactError(f"{path} is shorter than its manifest says; build the artifact again")
        arrays.append(memory[start:stop].view(dtype).reshape(shape))
    return tuple(arrays)


def _read_file(path: Path) -> NDArray[np.uint8]:
    memory = paged(path.stat().st_size)
    with path.open("rb") as stream:
        stream.readinto(memory.data)
    return memory


class SharedWeights:
    """Weights of several parts; equal ones are kept once."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._numbers: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def add(self, weights: Sequence[Array]) -> list[int]:
        """Numbers of ``weights`` in ``arrays``."""
        numbers = []
        for array in weights:
            key = (str(array.dtype), array.shape, hashlib.sha256(np.ascontiguousarray(array).data).digest())
            if key not in self._numbers:
                self._numbers[key] = len(self.arrays)
                self.arrays.append(array)
            numbers.append(self._numbers[key])
        return numbers
