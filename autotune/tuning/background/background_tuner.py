"""The process that tunes for a session with ``adapt``: ``python -m autotune.tuning.background.background_tuner``.

Each line of its input is JSON: first ``Settings``, then lists of sizes with the seconds that requests of them took.
The process says what it does in lines: ``state …``, ``built``, ``failed …``, and last ``done N`` after N lists. At the
end of its input, it ends at once with all that it started.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from autotune.host.process_limits import end_with_parent
from autotune.host.shared_files import lock
from autotune.interface import Shapes
from schedules.vocabulary.errors import ArtifactError, AutotuneError, UnsupportedError

if TYPE_CHECKING:  # loads ONNX and more, and this process must first be one that ends with its parent
    from autotune.events import Event
    from autotune.options import Options

NICENESS = 19

BUDGETS_S = (0.0, 20.0, 120.0)
"""CPU seconds of tuning per set, stage by stage: the first stage builds what templates guess. Heuristic: as
``EFFORTS``."""

LOCK = "tuning.lock"
"""File that the tuner of one session locks while sessions of other processes wait for theirs."""

PATIENCE_S = 3600.0
"""Longest wait for the tuner of another process."""


@dataclass(frozen=True)
class Settings:
    """The model to tune, and the limits of that.

    Attributes:
        model: the ONNX file.
        out: the artifact.
        threads: of a run.
        cpu_share: of this process's CPUs, on average.
        until: as ``Options.until``.
        parent: the session's process.
    """

    model: str
    out: str
    threads: int
    cpu_share: float
    until: float
    parent: int


class Pace:
    """An observer that sleeps until this process and its children are within their share of the CPU."""

    def __init__(self, cpu_share: float, cpus: int) -> None:
        import psutil  # this process must first be one that ends with its parent

        self._process = psutil.Process()
        self._allowed = cpu_share * cpus
        self._gone = psutil.NoSuchProcess, psutil.AccessDenied
        self._began, self._spent_before_s = time.monotonic(), 0.0
        self._spent_before_s = self._spent_s()

    def __call__(self, event: Event | None = None) -> None:
        """Sleep as long as needed."""
        time.sleep(max(0.0, self._spent_s() / self._allowed - (time.monotonic() - self._began)))

    def _spent_s(self) -> float:
        total = sum(self._process.cpu_times()[:4])
        for child in self._process.children(recursive=True):
            try:
                total += sum(child.cpu_times()[:4])
            except self._gone:
                continue
        return float(total) - self._spent_before_s


class BackgroundTuner:
    """Tunes for the sizes that are asked for until there are no others.

    Args:
        asked: lists of sizes, as they come.
        out: what is said.
    """

    def __init__(self, settings: Settings, asked: queue.Queue[list[Any]], out: IO[str]) -> None:
        self._settings, self._asked, self._out = settings, asked, out
        self._demand: dict[tuple[tuple[int, ...], ...], float] = {}
        self._heard = 0
        self._is_whole = True
        self._pace = Pace(settings.cpu_share, len(os.sched_getaffinity(0)))

    def run(self) -> None:
        """Tune, stage by stage; sizes that come meanwhile begin with the first stage.

        Raises:
            AutotuneError, OSError: if the model cannot be tuned, or the log or the artifact cannot be written.
        """
        from autotune.runtime.adaptive.whole_model import WholeModel  # loads ONNX
        from autotune.tuning.background.chosen_sets import SizeChooser  # loads ONNX

        model, out = Path(self._settings.model), Path(self._settings.out)
        self._say("state looking for sizes that can be padded")
        chooser = SizeChooser(model, WholeModel(model, 1))
        self._hear(wait=True)
        stage, tried = 1, list[Shapes]()  # a set that is not there after it was tuned for is not tried again
        while True:
            with self._alone(out.parent):
                present = self._present(out)
                new = chooser.choose(self._demand, [*present, *tried]) if self._is_whole or not present else []
                tried += new
                stage = 0 if new else stage
                if stage == len(BUDGETS_S) or not (present or new):
                    return
                self._tune(model, out, [*present, *new], stage)
            stage += 1
            self._hear(wait=False)

    def _tune(self, model: Path, out: Path, sets: list[Shapes], stage: int) -> None:
        from autotune.tuning.tune import tune  # loads TVM

        told = "; ".join(", ".join("x".join(map(str, shape)) for shape in shapes.values()) for shapes in sets)
        self._say(f"state tuning for {told} (stage {stage + 1} of {len(BUDGETS_S)})")
        self._pace()
        try:
            tune(model, self._options(out, sets, stage), self._pace)
        except UnsupportedError:
            if len(sets) == 1:
                raise
            self._is_whole = False  # ONNX Runtime runs parts of it, for one set of shapes
            tune(model, self._options(out, sets[:1], stage), self._pace)
        self._say("built")

    def _options(self, out: Path, sets: list[Shapes], stage: int) -> Options:
        from autotune.options import INSTANT, NONE, Options  # these load what this process needs later

        chosen = [{name: tuple(shape) for name, shape in shapes.items()} for shapes in sets]
        settings = self._settings
        options = Options(
            out=out,
            threads=settings.threads,
            inputs=chosen[0] if len(chosen) == 1 else {},
            shapes=tuple(chosen) if len(chosen) > 1 else (),
            fallback=NONE if len(chosen) > 1 else None,  # the session itself gives other sizes to ONNX Runtime
        )
        if not BUDGETS_S[stage]:
            return replace(options, effort=INSTANT)
        seconds = BUDGETS_S[stage] * len(sets) / settings.cpu_share
        return replace(options, budget_s=seconds, until=settings.until)

    def _present(self, out: Path) -> list[Shapes]:
        """The sets of the artifact at ``out``; none if there is none that can be read."""
        from autotune.artifact.composite import read_composite  # loads ONNX
        from autotune.artifact.directory import read_artifact  # loads ONNX
        from autotune.artifact.manifest import KERNELS, SHAPES, read_manifest  # loads NumPy

        try:
            kind = read_manifest(out)["kind"]
            if kind == SHAPES:
                return [dict(part.shapes) for part in read_composite(out).parts]
            self._is_whole = self._is_whole and kind == KERNELS
            inputs = read_artifact(out).inputs if kind == KERNELS else read_composite(out).interface.inputs
        except ArtifactError:
            return []
        return [{spec.name: tuple(map(int, spec.shape)) for spec in inputs}]

    def _hear(self, wait: bool) -> None:
        """Take in what was asked.

        Args:
            wait: for the first list.
        """
        before = self._heard
        while not self._asked.empty() or (wait and self._heard == before):
            sizes = self._asked.get()
            self._heard += 1
            for shapes, seconds in sizes:
                key = tuple(tuple(int(size) for size in shape) for shape in shapes)
                self._demand[key] = self._demand.get(key, 0.0) + float(seconds)

    @contextmanager
    def _alone(self, folder: Path) -> Iterator[None]:
        """Wait until no other process tunes this model."""
        with open(folder / LOCK, "w", encoding="utf-8") as file:
            lock(file.fileno(), fcntl.LOCK_EX, PATIENCE_S)
            yield

    def say_end(self, error: str = "") -> None:
        """Say that nothing is left to do, or what went wrong."""
        self._say(f"failed {error}" if error else "state idle")
        self._say(f"done {self._heard}")

    def _say(self, line: str) -> None:
        self._out.write(" ".join(line.split()) + "\n")
        self._out.flush()


def _listen(asked: queue.Queue[list[Any]]) -> None:
    """Pass on what is asked; when nobody can ask any more, end this process and all that it started."""
    for line in sys.stdin:
        try:
            asked.put(list(json.loads(line)))
        except ValueError:
            continue
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    """Tune for the session that started this process."""
    settings = Settings(**json.loads(sys.stdin.readline()))
    end_with_parent(settings.parent)
    os.nice(NICENESS)
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries print what they like
    asked: queue.Queue[list[Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    from autotune.versions import check_versions  # judges what is loaded next

    check_versions()
    tuner = BackgroundTuner(settings, asked, said)
    try:
        tuner.run()
    except (AutotuneError, OSError, MemoryError) as error:
        tuner.say_end(str(error) or type(error).__name__)
    else:
        tuner.say_end()
    os._exit(0)


if __name__ == "__main__":
    main()
