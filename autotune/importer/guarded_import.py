"""Import in a process of its own, which can be killed: a model file may be broken or hostile.

The importer runs in a fork of this process. It has limits (``import_worker.Limits``) on its CPU time, its memory and
the wall clock, which grow with the model's bytes on disk and its number of nodes. The finished program comes back in
memory that both processes map. If nothing comes back, the model is refused in one line, like any other that cannot be
imported. The checked model is not sent: once the fork has found it sound, this process reads it too, while the fork
goes on. The importer runs no compiled kernel, so it does not need TVM's threads, which a fork does not inherit.

Why not a ``WorkerPool``: its workers come from a server that would have to load TVM and the importer first, which takes
about 2 s, while a fork of this process has both loaded and costs milliseconds. A worker would also send the weights
through a pipe, which copies them twice. The pieces that do not depend on this are shared: ``host/process_limits.py``.
"""

from __future__ import annotations

import logging
import math
import mmap
import multiprocessing
import os
import pickle
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import onnx

from autotune.host.pages import ALIGNMENT
from autotune.host.process_limits import cause_of_death, end_with_parent, signal_of
from autotune.importer.conversion.dead_branches import notes_of
from autotune.importer.conversion.flat_model import flatten
from autotune.importer.generation.caches import add_lengths
from autotune.importer.import_worker import ADVICE, ImportWorker, Limits
from autotune.importer.load import load_model
from autotune.importer.onnx_model.graph_walk import all_nodes
from autotune.importer.onnx_model.segments import (
    Segment,
    declare_foreign,
    declare_states,
    kinds_alone,
    refuse_random,
    split,
)
from autotune.importer.operators.recurrent_ops import laid_out
from autotune.importer.program import Program, import_program, simplified
from autotune.options import FP32, Precision
from schedules.target import Target
from schedules.vocabulary.errors import AutotuneError, ModelError, UnsupportedError

Inputs = Mapping[str, Sequence[int]]
ATTEMPTS = 8
"""How often the nodes of a model are imported while it is cut: the whole, its halves, theirs around what fails."""

NOTE_BYTES = 512
"""Bytes of the note that says which operator a fork imports: longer than any text that is written there."""

LIMITS: ContextVar[Limits] = ContextVar("limits", default=Limits())  # noqa: B039 - Limits is frozen
"""The limits where none are given."""

logger = logging.getLogger(__name__)

Sound = Callable[[int], None]
"""Called with the number of nodes as soon as a model is known to be sound."""


@contextmanager
def import_memory(allowed: int | None) -> Iterator[None]:
    """Let models be imported in ``allowed`` bytes beside what their size on disk allows; None changes nothing.

    Who allows more trusts the file, which then may take as much time as any.
    """
    if allowed is None:
        yield
        return
    known = LIMITS.get()
    token = LIMITS.set(replace(known, memory_bytes=allowed, cpu_s=max(known.cpu_s, known.most_s)))
    try:
        yield
    finally:
        LIMITS.reset(token)


def import_model(
    path: Path,
    inputs: Inputs,
    target: Target,
    limits: Limits | None = None,
    precision: Precision = FP32,
    generates: bool = False,
) -> tuple[onnx.ModelProto, Program]:
    """The checked model at ``path``, and it as fused kernels whose products are computed in ``precision``.

    Large external weights of the model stay in their files (``onnx_model/tensors.py``).

    Args:
        generates: write caches in place.

    Raises:
        ModelError: in one line, if it is no sound model, cannot be imported, or takes more than ``limits``.
        UnsupportedError: if an operator cannot be imported.
        UsageError: if ``inputs`` does not fit the model.
    """

    def work(sound: Sound) -> Program:
        model = load_model(path, inputs, apart=True, mapped=True)
        sound(count_nodes(model) + laid_out(model))
        for note in notes_of(model):
            logger.warning("%s", note)
        caches = add_lengths(model) if generates else ()
        simple = simplified(model, target)
        del model  # the simplified model has its own copy of the weights
        return import_program(simple, target, precision, caches)

    try:
        model, program = guarded(path, inputs, work, apart=True, limits=limits)
    except _DeathError as death:
        crashed = signal_of(death.status) not in (signal.SIGXCPU, signal.SIGKILL)  # it took no more than it may
        culprit = _culprit(path, inputs, target, limits) if crashed else ""
        raise _DeathError(path, death.status, culprit) from None
    assert isinstance(program, Program)
    return model, program


def load_checked(path: Path, inputs: Inputs, foreign: bool = False) -> onnx.ModelProto:
    """The checked model at ``path``, which is not imported; with ``foreign`` as ``load_model`` has it.

    Raises:
        ModelError, UsageError: as ``import_model``.
    """

    def work(sound: Sound) -> None:
        sound(count_nodes(load_model(path, inputs, foreign)))

    return guarded(path, inputs, work, foreign)[0]


def cut_model(path: Path, inputs: Inputs, target: Target) -> tuple[onnx.ModelProto, list[Segment]]:
    """The checked model at ``path``, and it cut into what can be imported and what cannot.

    Operators that are not ONNX's own may be among it. Where it cannot say what they make, ONNX Runtime is asked.

    Raises:
        ModelError: as ``import_model``, or if it draws random numbers.
        UsageError: as ``import_model``.
    """

    def work(sound: Sound) -> list[tuple[bool, bytes]]:
        model = load_model(path, inputs, foreign=True)
        sound(ATTEMPTS * count_nodes(model))
        for note in notes_of(model):
            logger.warning("%s", note)
        declare_foreign(model)
        flat = flatten(model)
        declare_states(flat)
        refuse_random(flat)
        segments = split(flat, partial(_surviving, target=target))
        return [(segment.is_fallback, segment.model.SerializeToString()) for segment in segments]

    model, parts = guarded(path, inputs, work, foreign=True)
    return model, [Segment(island, onnx.load_model_from_string(text)) for island, text in parts]


def flat_model(path: Path, inputs: Inputs) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The checked model at ``path``, and it flattened (``flat_model.flatten``), of a model that was imported already.

    Raises:
        ModelError, UsageError: as ``import_model``.
    """
    model = load_model(path, inputs)
    return model, flatten(model)


def _surviving(part: onnx.ModelProto, target: Target) -> None:
    """Import a segment in a fork of its own, so that an operator that crashes the importer only fails this attempt.

    Raises:
        UnsupportedError: if it cannot be imported, dies, or takes more time than its nodes may.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        with suppress(Exception):
            end_with_parent(os.getppid())
            logging.getLogger().handlers = []
            seconds = math.ceil(LIMITS.get().seconds(0, count_nodes(part)))
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            # A segment is kernels and nothing else: the host has no part in it.
            status = int(import_program(simplified(part, target), target).frame is not None)
        os._exit(status)
    _, status = os.waitpid(pid, 0)
    if status:
        raise UnsupportedError(f"{part.graph.name or 'the segment'} cannot be imported: {cause_of_death(status)}")


def count_nodes(model: onnx.ModelProto) -> int:
    """Nodes of the graph, of the graphs in it, and of the model's functions."""
    return sum(1 for _ in all_nodes(model))


class _DeathError(ModelError):
    """A fork died before it could answer; ``status`` is as ``os.waitpid`` has it, ``culprit`` as ``_culprit`` says."""

    def __init__(self, path: Path, status: int, culprit: str = "") -> None:
        where = f" at {culprit}" if culprit else ""
        text = f"{path.name}: importing it crashed ({cause_of_death(status)}){where}; {ADVICE}"
        if signal_of(status) == signal.SIGXCPU:
            text = (
                f"{path.name}: importing it takes more time than a model of its size may; if you trust it, allow more, "
                "as in --import-memory 4GB, which lifts this limit too"
            )
        super().__init__(text)
        self.status = status


def guarded(
    path: Path,
    inputs: Inputs,
    work: Callable[[Sound], Any],
    foreign: bool = False,
    apart: bool = False,
    limits: Limits | None = None,
) -> tuple[onnx.ModelProto, Any]:
    """The checked model, and what ``work`` returns, done in a fork.

    Args:
        foreign, apart: as ``load_model`` has them.

    Raises:
        ModelError, UsageError: as ``work``, and where the fork died or did not end.
    """
    limits = limits or LIMITS.get()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    memory = os.memfd_create("tune-import")
    pid = os.fork()
    if pid == 0:
        ImportWorker(path, limits, theirs, memory).run(work)
    theirs.close()
    status = None
    try:
        return _follow(path, lambda: load_model(path, inputs, foreign, apart), ours, memory, limits)
    except EOFError:
        _, status = os.waitpid(pid, 0)
        raise _DeathError(path, status) from None
    finally:
        ours.close()
        os.close(memory)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _culprit(path: Path, inputs: Inputs, target: Target, limits: Limits | None) -> str:
    """The first operator whose import alone kills a process, in words; empty if none does.

    A second fork imports every kind of operator alone, and notes in shared memory which one is next.
    """
    with mmap.mmap(-1, NOTE_BYTES) as note:

        def work(sound: Sound) -> None:
            model = simplified(load_model(path, inputs), target)
            sound(ATTEMPTS * count_nodes(model))
            for node, alone in kinds_alone(model):
                text = f"operator {node.op_type} (node {node.name[:200]!r})".encode()
                note[:] = text[:NOTE_BYTES].ljust(NOTE_BYTES, b"\0")
                with suppress(AutotuneError):
                    import_program(alone, target)

        try:
            guarded(path, inputs, work, limits=limits)
        except _DeathError:
            return note[:].rstrip(b"\0").decode(errors="ignore")
        except AutotuneError:  # out of time, for one
            return ""
    return ""


def _follow(
    path: Path, load: Callable[[], onnx.ModelProto], messages: Connection, memory: int, limits: Limits
) -> tuple[onnx.ModelProto, Any]:
    """Listen to the fork until it is done or out of time; ``EOFError`` if it dies."""
    size = path.stat().st_size if path.is_file() else 0
    allowed_s = limits.patience * limits.seconds(size)
    began = time.monotonic()
    model: onnx.ModelProto | None = None
    while True:
        if not messages.poll(max(0.0, began + allowed_s - time.monotonic())):
            raise ModelError(f"{path.name}: importing it did not end within {allowed_s:.0f} s; {ADVICE}")
        kind, *content = messages.recv()
        if kind == "sound":
            allowed_s += limits.patience * content[0]
            model = load()
        elif kind == "log":
            logging.getLogger(content[0]).log(content[1], "%s", content[2])
        elif kind == "refused":
            raise content[0]
        else:
            assert model is not None
            return model, _received(memory, content[0])


def _received(memory: int, lengths: Sequence[int]) -> Any:
    """The fork's result; its arrays are writable and lie in the memory that it wrote."""
    whole = memoryview(mmap.mmap(memory, 0, mmap.MAP_PRIVATE))
    parts, place = [], 0
    for length in lengths:
        parts.append(whole[place : place + length])
        place += -(-length // ALIGNMENT) * ALIGNMENT
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - our own fork wrote it
