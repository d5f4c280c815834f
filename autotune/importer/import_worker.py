"""The fork of ``guarded_import.py``: its work, its limits, and the messages that it sends.

It sends one message each: ``("sound", extra CPU seconds)``, ``("log", logger, level, text)``, and last
``("refused", error)`` or ``("done", lengths)`` with the result in the shared memory. The lengths are those of a pickle
and of its arrays, each of which starts at a multiple of ``ALIGNMENT``.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import resource
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import uses_external_data

from autotune.host.pages import ALIGNMENT
from autotune.host.process_limits import cap_memory, is_out_of_memory, isolate, keep_what_is_loaded
from autotune.importer.onnx_model.graph_walk import walk_tensors
from schedules.vocabulary.errors import AutotuneError, ModelError, first_line

ADVICE = "export the model again, with standard operators"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Limits of importing a model. Heuristic: ordinary models take a tenth.

    Attributes:
        cpu_s: CPU seconds for a model of no size.
        bytes_per_s: one more per so many bytes on disk.
        s_per_node: more per node, once the model was found to be sound.
        most_s: never more.
        patience: wall-clock seconds per CPU second: on a loaded machine the process waits for its turn.
        memory_bytes: memory for a model of no size; what constants grow to that a small file computes.
        memory_per_byte: more per byte on disk: the file, what is parsed, what is folded, what is packed.
    """

    cpu_s: float = 6.0
    bytes_per_s: float = 32e6
    s_per_node: float = 0.25
    most_s: float = 900.0
    patience: float = 4.0
    memory_bytes: int = 512 << 20
    memory_per_byte: int = 10

    def seconds(self, size: int, nodes: int = 0) -> float:
        """CPU seconds for a model of ``size`` bytes and ``nodes`` nodes."""
        return min(self.most_s, self.cpu_s + size / self.bytes_per_s + nodes * self.s_per_node)

    def memory(self, size: int) -> int:
        """Bytes of memory for a model of ``size`` bytes."""
        return self.memory_bytes + self.memory_per_byte * size


class _Forwarded(logging.Handler):
    """Sends log records to the other process."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        self._connection.send(("log", record.name, record.levelno, record.getMessage()))


class ImportWorker:
    """Does the work in the fork and ends it.

    Args:
        path: the model's file.
        connection: to send messages on.
        memory: handle of the shared memory to write the result to.
    """

    def __init__(self, path: Path, limits: Limits, connection: Connection, memory: int) -> None:
        self._path = path
        self._limits = limits
        self._connection = connection
        self._memory = memory
        self._size = 0

    def run(self, work: Callable[[Callable[[int], None]], Any]) -> NoReturn:
        """Never returns: the fork ends here."""
        try:
            self._prepare()
            self._connection.send(self._outcome(work))
        finally:
            os._exit(0)

    def _prepare(self) -> None:
        """End with the parent, write nothing, and forward what is logged."""
        isolate()
        keep_what_is_loaded()
        root = logging.getLogger()
        for known in (
            root,
            *(child for child in root.manager.loggerDict.values() if isinstance(child, logging.Logger)),
        ):
            known.handlers = []
        root.addHandler(_Forwarded(self._connection))

    def _limit(self, nodes: int) -> float:
        """Set the limits for what is known of the model by now; the CPU seconds left."""
        left_s = self._limits.seconds(self._size, nodes)
        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + left_s), hard))
        if not nodes:
            cap_memory(self._limits.memory(self._size))
        return left_s

    def _outcome(self, work: Callable[[Callable[[int], None]], Any]) -> tuple[Any, ...]:
        def sound(nodes: int) -> None:
            self._connection.send(("sound", self._limit(nodes)))

        name = self._path.name
        try:
            self._size = self._path.stat().st_size if self._path.is_file() else 0
            self._limit(0)
            self._size += external_bytes(self._path)
            self._limit(0)
            return ("done", self._write(work(sound)))
        except AutotuneError as error:
            return ("refused", self._too_large() if is_out_of_memory(str(error)) else error)
        except Exception as error:  # a hostile file may raise anything anywhere; it is refused, and the program goes on
            logger.debug("importing %s", name, exc_info=True)
            if isinstance(error, MemoryError) or is_out_of_memory(str(error)):
                return ("refused", self._too_large())
            if isinstance(error, RecursionError):
                text = f"{name} nests too deep to be imported; {ADVICE}"
            else:
                text = f"{name} cannot be imported: {type(error).__name__}: {first_line(error)}; {ADVICE}"
            return ("refused", ModelError(text))

    def _too_large(self) -> ModelError:
        most = self._limits.memory(self._size) >> 20
        return ModelError(
            f"{self._path.name} needs more than {most} MiB to be imported, more than a model of its size may; if you "
            "trust it, allow more, as in --import-memory 4GB"
        )

    def _write(self, result: Any) -> list[int]:
        arrays: deque[pickle.PickleBuffer] = deque()
        data = pickle.dumps(result, 5, buffer_callback=arrays.append)
        del result  # each array goes as soon as it is written: there are never two copies of all weights
        arrays.appendleft(pickle.PickleBuffer(data))
        place, lengths = 0, []
        while arrays:
            part = arrays.popleft().raw()
            lengths.append(part.nbytes)
            at = place
            while part.nbytes:
                written = os.pwrite(self._memory, part, at)
                part, at = part[written:], at + written
            place += -(-lengths[-1] // ALIGNMENT) * ALIGNMENT
        os.ftruncate(self._memory, max(place, ALIGNMENT))
        return lengths


def external_bytes(path: Path) -> int:
    """Bytes of the files beside the model that it keeps its tensors in; nothing is read but the model itself."""
    return sum(file.lstat().st_size for file in external_files(path))


def external_files(path: Path) -> list[Path]:
    """The files beside the model that it keeps its tensors in; none of a model that cannot be read."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes() if path.is_file() else b"")
    except (DecodeError, OSError):
        return []  # the importer will say what is wrong with it
    files = set()
    for tensor in walk_tensors(model):
        if uses_external_data(tensor):
            location = PurePosixPath(next((e.value for e in tensor.external_data if e.key == "location"), ""))
            plain = not location.is_absolute() and ".." not in location.parts and "\0" not in str(location)
            if plain and (path.parent / location).is_file():
                files.add(path.parent / location)
    return sorted(files)
