"""One model, built untuned and with random configs as tuned kernels, against ONNX Runtime: all in this process."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from autotune.artifact.plan import Choice, Plan
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.importer.onnx_model.load import load_model
from autotune.importer.onnx_model.simplify import simplify
from autotune.importer.program import Program, import_program, interface
from autotune.measure.kernel_builder import Builder, object_of
from autotune.measure.measurer import Candidate, symbol_of
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import random_inputs
from schedules import lower as lowering
from schedules.config import Config
from schedules.errors import ModelError, ScheduleError
from schedules.lower import BASELINE, load_program, loss, lower
from schedules.target import Target

RTOL, ATOL = 1e-3, 3e-4
"""|ours − theirs| ≤ RTOL·|theirs| + ATOL·rms(theirs): as measuring checks kernels, a little more for their sum."""

LOSSY = 10.0
"""Times that Winograd may be worse; what an artifact has is chosen by the whole model's error (builder/one_lane.py)."""

JITTER = 3e-7
"""Relative change of inputs by which an ill-conditioned graph is known: a few roundings."""

DRAWS = 6
"""Random configs tried per kernel until one applies."""

onnxruntime.set_default_logger_severity(4)

Arrays = Sequence[NDArray[Any]]
Stage = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """What became of a graph.

    Attributes:
        outcome: ``same``, ``refused``, ``mismatch``, ``ill-conditioned``, ``no reference``, ``error``; and from
            outside, ``crash``, ``hang`` or ``slow build``.
        stage: where, if something went wrong: ``import``, ``untuned`` or ``tuned``.
        operators: of the graph.
        tuned: kernels that had a random config.
    """

    seed: int
    outcome: str
    stage: str = ""
    message: str = ""
    operators: tuple[str, ...] = ()
    tuned: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class InlineMeasurer:
    """Compiles in this process; stands in for a measurer's workers."""

    def __init__(self, target: Target, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self._builder = Builder(target, lowering)
        self._known: dict[tuple[str, str], Path] = {}

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        return [self._object(candidate) for candidate in candidates]

    def _object(self, candidate: Candidate) -> Path:
        key = (candidate.task.key, candidate.config.to_json())
        if key not in self._known:
            library = str(self._folder / f"{len(self._known)}.so")
            scheduled = lower(load_program(candidate.program), candidate.config, self._target)
            self._builder.compile(scheduled.mod["main"], symbol_of(candidate.task.key), library)
            self._known[key] = Path(object_of(library))
        return self._known[key]


def reference(model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> Arrays:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def difference(ours: Arrays, theirs: Arrays, slack: float = 1.0) -> str:
    """What differs between outputs; empty if nothing does."""
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return f"output {number} is {mine.dtype}{mine.shape}, not {other.dtype}{other.shape}"
        if mine.dtype.kind != "f":
            bad = np.asarray(mine != other)
        else:
            finite = np.isfinite(other)
            scale = float(np.sqrt(np.mean(np.square(other[finite], dtype=np.float64)))) if finite.any() else 0.0
            with np.errstate(invalid="ignore", over="ignore"):
                far = ~(np.abs(mine - other) <= slack * (RTOL * np.abs(other) + ATOL * scale))
            bad = np.asarray(far & ~((mine == other) | (np.isnan(mine) & np.isnan(other))))
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
            return (
                f"output {number}: {int(bad.sum())} of {bad.size} differ, at {place} {mine[place]} not {other[place]}"
            )
    return ""


def random_configs(program: Program, target: Target, rng: np.random.Generator) -> dict[str, Config]:
    """Task key → a random config that applies; the untuned one where none was found."""
    chosen = {}
    for task in program.tasks:
        chosen[task.key] = BASELINE
        space = program.spaces[task.key]
        if not space.knobs:
            continue
        func = load_program(program.programs[task.key])
        for config in space.sample(DRAWS, rng):
            try:
                lower(func, config, target)
            except ScheduleError:
                continue
            chosen[task.key] = config
            break
    return chosen


def examine(model: onnx.ModelProto, seed: int, stage: Stage, target: Target) -> Found:
    """Import ``model``, build it twice and compare; ``stage`` is told what comes next."""
    operators = tuple(sorted(Counter(node.op_type for node in model.graph.node)))
    with tempfile.TemporaryDirectory(prefix="tune-fuzz-") as name:
        folder = Path(name)
        stage("import")
        path = folder / "model.onnx"
        onnx.save(model, path)
        feed = _feed(model, seed)
        try:
            theirs = reference(model, feed)
        except Exception as error:  # whatever ONNX Runtime makes of a graph that the checker likes
            return Found(seed, "no reference", "import", str(error)[:300], operators)
        try:
            program = import_program(simplify(load_model(path)), target)
        except ModelError as error:
            return Found(seed, "refused", "import", str(error), operators)
        chosen = random_configs(program, target, np.random.default_rng([11, seed]))
        measurer = InlineMeasurer(target, folder)
        for label, configs in (("untuned", dict.fromkeys(chosen, BASELINE)), ("tuned", chosen)):
            stage(f"build {label}")
            choices = (Choice(key, config, None) for key, config in sorted(configs.items()))
            plan = Plan(target, tuple(choices))
            build_artifact(folder / label, program, plan, path, measurer)  # type: ignore[arg-type]
            stage(f"run {label}")
            ours = InferenceSession(folder / label).run(None, feed)
            slack = LOSSY if any(loss(config) for config in configs.values()) else 1.0
            wrong = difference(ours, theirs, slack)
            if wrong:
                outcome = "ill-conditioned" if _is_steep(model, feed, theirs, slack) else "mismatch"
                return Found(seed, outcome, label, wrong, operators)
    return Found(seed, "same", operators=operators, tuned=sum(config != BASELINE for config in chosen.values()))


def _feed(model: onnx.ModelProto, seed: int) -> dict[str, NDArray[Any]]:
    return dict(random_inputs(interface(model)[0], seed))


def _is_steep(model: onnx.ModelProto, feed: dict[str, NDArray[Any]], theirs: Arrays, slack: float) -> bool:
    """Whether ONNX Runtime differs from itself by a tenth of what is allowed when inputs move by a few roundings."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        moved = {
            name: (array * (1 + JITTER * rng.standard_normal(array.shape))).astype(array.dtype)
            if array.dtype.kind == "f"
            else array
            for name, array in feed.items()
        }
        if difference(reference(model, moved), theirs, 0.1 * slack):
            return True
    return False
