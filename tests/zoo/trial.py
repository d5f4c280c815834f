"""``python -m tests.zoo.trial MODEL``: one model in a process of its own, as a user meets it; prints one JSON object.

A model that leaves shapes open is given those of the command that its refusal suggests.
"""

from __future__ import annotations

import itertools
import json
import resource
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx
import psutil

from autotune.host.lean_loading import leave_out_unused
from autotune.host.process_limits import collect_rarely

collect_rarely()  # as the command does, before it loads what is large
leave_out_unused()
# ruff: noqa: E402
from autotune.host.machine import host_target
from autotune.importer.conversion.dead_branches import notes_of
from autotune.importer.guarded_import import count_nodes, cut_model, import_model
from autotune.importer.import_worker import external_bytes
from autotune.importer.onnx_model.input_shapes import parse_input
from schedules.vocabulary.errors import AutotuneError
from tests.zoo.shipped import SHAPES

Inputs = Mapping[str, tuple[int, ...]]

VERDICTS = RIGHT, FALLBACK, REFUSED, WRONG = "right", "right with fallback", "refused", "wrong"
"""Return the verdict on a built model: a crash counts as refused, and a build that failed as wrong."""


@dataclass(frozen=True)
class Outcome:
    """What became of a model.

    Attributes:
        kind: ``whole``, ``fallback`` (ONNX Runtime runs a part), ``refused`` or ``crash``.
        message: why not whole.
        nodes, megabytes: of the file and its external data.
        seconds: from the start of the process to the tasks of the whole model, or to its refusal.
        peak_mb: resident memory of the larger of the two processes that import, in MB.
        inputs: shapes that had to be given.
        tuned: the fields of ``tuned.Tuned``; None where it was only imported.
    """

    name: str
    kind: str
    message: str = ""
    nodes: int = 0
    megabytes: float = 0.0
    seconds: float = 0.0
    peak_mb: float = 0.0
    inputs: tuple[str, ...] = ()
    tuned: dict[str, Any] | None = None

    @property
    def verdict(self) -> str:
        """One of ``VERDICTS``; "" where it was only imported."""
        if self.kind in ("refused", "crash"):
            return REFUSED
        if self.tuned is None:
            return ""
        if not self.tuned["right"]:
            return WRONG
        return RIGHT if self.kind == "whole" else FALLBACK


def attempt(path: Path) -> Outcome:
    """Import ``path``, whole or cut."""
    target = host_target(2)
    started_s = time.time() - psutil.Process().create_time()
    flags = SHAPES.get(path.stem, ())
    began = time.perf_counter()
    kind, message = "whole", ""
    try:
        model, _ = import_model(path, parsed(flags), target)
        flags = flags or assumed(model)
    except AutotuneError as error:
        kind, message = "refused", str(error)
    seconds = started_s + time.perf_counter() - began
    usage = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    if kind == "refused":
        try:
            cut_model(path, parsed(flags), target)
            kind = "fallback"
        except AutotuneError as error:
            message = f"{message}; with --fallback: {error}"
    nodes = 0 if kind == "refused" else count_nodes(onnx.load(path, load_external_data=False))
    size = (path.stat().st_size + external_bytes(path)) / 1e6
    return Outcome(path.stem, kind, message, nodes, round(size, 1), round(seconds, 1), round(max(usage) / 1e3), flags)


def assumed(model: onnx.ModelProto) -> tuple[str, ...]:
    """The values of ``--input`` that would ask for the sizes that an import assumed."""
    note = next((text for text in notes_of(model) if "open sizes are taken as" in text), "")
    words = shlex.split(note.partition(" (")[0])
    return tuple(after for word, after in itertools.pairwise(words) if word == "--input")


def parsed(flags: tuple[str, ...]) -> Inputs:
    """As ``import_model`` takes them."""
    return dict(parse_input(flag) for flag in flags)


if __name__ == "__main__":
    print(json.dumps(asdict(attempt(Path(sys.argv[1])))))
