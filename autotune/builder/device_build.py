"""``tune run --target '{"kind": "cuda", …}'``: decide, compile, inspect and write, on a machine that may have no GPU.

For every task the configs to try are, best first: the log's own records of this task and target, fastest first; what
the nearest tasks of the log ran fastest with; the template's own guesses; the untuned program. The first that compiles
without local memory is taken. Nothing is run here.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.directory import write_artifact
from autotune.artifact.identity import identity
from autotune.artifact.make_plan import record_key
from autotune.artifact.manifest import sha256
from autotune.artifact.plan import Choice, Plan
from autotune.artifact.replacement import install, scratch_beside
from autotune.backends.cuda.cuda_builder import Chosen, Wanted, build_kernels
from autotune.builder.accuracy import Built
from autotune.builder.build_request import BuildRequest, BuildResult
from autotune.builder.reuse import Reuse
from autotune.graph.flattening import flatten
from autotune.importer.program import Program
from autotune.measure.measurer import symbol_of
from schedules.config import Config
from schedules.lower import BASELINE
from schedules.target import Target
from schedules.task import Task
from schedules.vocabulary.errors import MissingRecordError
from tuning_logs.sql_store import TuningLog

logger = logging.getLogger(__name__)

FASTEST = 3
"""Recorded configs of a task that are tried before anything else. Heuristic, not measured."""

GUESSES = 6
"""Initial configs of a template that are tried. Heuristic, not measured."""

NOT_RUN = (
    "built without a device, so none of its kernels has ever run: neither its outputs nor its speed are known; "
    "check it on a machine with a GPU with 'tune verify'"
)


def candidates(task: Task, program: Program, target: Target, log: TuningLog, frozen: bool) -> tuple[Config, ...]:
    """Configs of one task, best first; see the module's head.

    Raises:
        MissingRecordError: if ``frozen`` and the log has none.
    """
    space = program.spaces[task.key]
    if not space.knobs:
        return (BASELINE,)
    key = record_key(task, space, target)
    known = [record.config for record in log.fastest(key, FASTEST, space)]
    if frozen and not known:
        raise MissingRecordError(
            f"{task.name} ({task.key}) has no record: {log.explain_miss(key)}; "
            "run a job of 'tune pack' and merge its log"
        )
    if not known:
        reuse = Reuse(log, target)
        space = reuse.guided(space, reuse.near(task, key))
    return tuple(dict.fromkeys([*known, *space.initial[:GUESSES], BASELINE]))


def build_for_device(request: BuildRequest) -> BuildResult:
    """Install the artifact for a device, verified where the device is in this machine.

    Without it, the manifest's provenance says that nothing was verified.

    Raises:
        ArtifactError: if it cannot be written, or ``request.out`` exists and is not an artifact.
        ModelError: if the program holds more than kernel calls.
        MeasureError: if a kernel cannot be compiled at all.
        VerificationError: if outputs differ from the reference; ``request.out`` is left as it was.
    """
    with scratch_beside(request.out) as folder:
        built, chosen = _write(folder, request)
        for symbol, item in chosen.items():
            if item.local_bytes:
                logger.warning("%s uses %d bytes of local memory in every config tried", symbol, item.local_bytes)
        result = BuildResult(built.plan, None, {}, reason=NOT_RUN)
        if request.options.device:
            passed = request.first_that_passes([built])
            assert passed is not None
            result = BuildResult(built.plan, passed.verdict, {}, passed.verify_s)
        install(built.path, request.out)
    return result


def _write(folder: Path, request: BuildRequest) -> tuple[Built, dict[str, Chosen]]:
    """Write the artifact of the request's program; it, and symbol → what was chosen and what its cubin says."""
    program, target, log, options = request.program, request.target, request.log, request.options
    wanted = [
        Wanted(symbol_of(task.key), program.programs[task.key], candidates(task, program, target, log, options.frozen))
        for task in program.tasks
    ]
    library, path = folder / "kernels.so", folder / request.out.name
    chosen = build_kernels(wanted, target, library, server=request.server)
    plan = _plan(program, target, log, chosen)
    ready = apply_plan(program, plan)
    steps = flatten(ready, {})
    provenance: dict[str, Any] = {
        "model": request.path.name,
        "sha256": sha256(request.path),
        "kernels": _summary(chosen),
    }
    if not options.device:
        provenance["unverified"] = NOT_RUN

    def moved(place: Path) -> None:
        library.replace(place)

    own = replace(ready, weights=steps.weights)
    write_artifact(path, own, plan, steps, identity(program, plan), provenance, moved)
    return Built(path, plan), chosen


def _plan(program: Program, target: Target, log: TuningLog, chosen: dict[str, Chosen]) -> Plan:
    choices = []
    for task in program.tasks:
        config = chosen[symbol_of(task.key)].config
        space = program.spaces[task.key]
        known = log.fastest(record_key(task, space, target), FASTEST, space)
        measured = next((r for r in known if r.config == config), None)
        choices.append(Choice(task.key, config, None if measured is None else measured.measurement.latency_s))
    return Plan(target, tuple(sorted(choices, key=lambda choice: choice.task)))


def _summary(chosen: dict[str, Chosen]) -> dict[str, list[dict[str, int]]]:
    """Return ptxas's figures for every kernel, for the manifest."""
    return {
        symbol: [
            {"registers": k.registers, "shared_bytes": k.shared_bytes, "local_bytes": k.local_bytes}
            for k in item.kernels
        ]
        for symbol, item in chosen.items()
    }
