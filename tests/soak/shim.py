"""Moves the time of day of processes, and makes their disk slow, while they run."""

from __future__ import annotations

import mmap
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")

STATE = struct.Struct("=qq")
"""Seconds added to the time of day, microseconds added to writing through to the disk."""


class Shim:
    """A library for ``LD_PRELOAD``, and the numbers that it reads.

    Args:
        folder: where the library and the numbers lie; it has to outlive the processes.

    Raises:
        subprocess.CalledProcessError: if the compiler refuses.
    """

    def __init__(self, folder: Path) -> None:
        library, numbers = folder / "shim.so", folder / "shim.state"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
        numbers.write_bytes(bytes(STATE.size))
        with numbers.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), STATE.size)
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "TUNE_SOAK_SHIM": str(numbers)}

    def set(self, offset_s: int = 0, sync_s: float = 0.0) -> None:
        """From now on: seconds that the time of day is off, and that writing through takes longer."""
        STATE.pack_into(self._shared, 0, offset_s, round(1e6 * sync_s))
