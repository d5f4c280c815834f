"""The interface of engines that artifacts are compared with (``tune bench --against``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

INSTALL = "pip install 'tune-compiler[bench]'"


@dataclass(frozen=True)
class Work:
    """The model and inputs that an engine runs.

    Attributes:
        folder: holds ``model.onnx`` with its shapes fixed, for engines that read ONNX.
        threads: that it may use.
        artifact: of ours.
        feed: input name → array; an engine reads it at every run.
        serve: fields of ``ServeOptions``; None where one client calls.
        source: the ONNX file as the user has it; None where no engine reads it.
    """

    folder: Path
    threads: int
    artifact: Path
    feed: dict[str, NDArray[Any]]
    serve: Mapping[str, Any] | None = None
    source: Path | None = None

    @property
    def model(self) -> str:
        """Path of the ONNX file."""
        return str(self.folder / "model.onnx")


def load_work(folder: Path) -> Work:
    """Return the work in ``folder``, as ``bench.write_job`` wrote it."""
    job = json.loads((folder / "job.json").read_text())
    names, source = job["inputs"], job.get("source")
    with np.load(folder / "inputs.npz") as arrays:
        feed = dict(zip(names, (arrays[f"arr_{i}"] for i in range(len(names))), strict=True))
    return Work(
        folder, job["threads"], Path(job["artifact"]), feed, job.get("serve"), None if source is None else Path(source)
    )


@dataclass(frozen=True)
class Engine:
    """A loaded model.

    Attributes:
        run: one inference, outputs as NumPy arrays that the caller may read.
        clients: number of clients → what each of them runs; None where all of them may call ``run``.
    """

    version: str
    precision: str
    run: Callable[[], object]
    clients: Callable[[int], list[Callable[[], object]]] | None = None


Loader = Callable[[Work], Engine]
"""Loads a model in a process of its own.

It imports its engine, since a process must hold no threads of another one. It raises ``MeasureError`` for a model
that it cannot run.
"""


@dataclass(frozen=True)
class Peer:
    """An engine to compare with: the object that an entry point of the group ``tune.peers`` names.

    Attributes:
        package: Python package that it needs.
        ways: name → how one request at a time is run; the fastest is compared, the first unless another is faster.
        clients: name → how several clients are served; empty for an engine that cannot.
        install: the command that installs ``package``.
    """

    package: str
    ways: Mapping[str, Loader]
    clients: Mapping[str, Loader] = field(default_factory=dict)
    install: str = INSTALL
