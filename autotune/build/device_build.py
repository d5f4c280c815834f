"""``tune run --target '{"kind": "cuda", …}'``: decide, compile, inspect and write, on a machine that may have no GPU.

For every task the configs to try are, best first: the log's own records of this task and target, fastest first; what
the nearest tasks of the log ran fastest with; the template's own guesses; the untuned program. The first that compiles
without local memory is taken. Nothing is run here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.artifact.apply_plan import specialise
from autotune.artifact.directory import identity, scratch_beside, sha256, write_artifact
from autotune.artifact.plan import Choice, Plan, record_key
from autotune.backends.cuda.cuda_builder import Chosen, Wanted, build_kernels
from autotune.build.reuse import Reuse
from autotune.graph.steps import flatten
from autotune.importer.program import Program
from autotune.measure.measurer import symbol_of
from autotune.options import Options
from schedules.config import Config
from schedules.errors import MissingRecordError, ModelError
from schedules.lower import BASELINE
from schedules.target import Target
from schedules.task import Task
from tuning_logs.log import TuningLog

FASTEST = 3
"""Recorded configs of a task that are tried before anything else."""

GUESSES = 6

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
    known = [record.config for record in log.fastest(key, FASTEST)]
    if frozen and not known:
        raise MissingRecordError(
            f"{task.name} ({task.key}) has no record: {log.explain_miss(key)}; "
            "run a job of 'tune pack' and merge its log"
        )
    if not known:
        reuse = Reuse(log, target)
        space = reuse.guided(space, reuse.near(task, key))
    return tuple(dict.fromkeys([*known, *space.initial[:GUESSES], BASELINE]))


def build_offline(
    out: Path, program: Program, target: Target, log: TuningLog, model_path: Path, options: Options
) -> dict[str, Chosen]:
    """Write the artifact of ``program`` for ``target``; symbol → what was chosen and what its cubin says.

    Where no device is used, the manifest's provenance says that nothing was verified.

    Raises:
        ArtifactError: if it cannot be written, or ``out`` exists and is not an artifact.
        ModelError: if the program holds more than kernel calls.
        MeasureError: if a kernel cannot be compiled at all.
    """
    wanted = [
        Wanted(symbol_of(task.key), program.programs[task.key], candidates(task, program, target, log, options.frozen))
        for task in program.tasks
    ]
    with scratch_beside(out) as folder:
        library = folder / "kernels.so"
        chosen = build_kernels(wanted, target, library)
        plan = _plan(program, target, log, chosen)
        ready = specialise(program, plan)
        steps = flatten(ready, {})
        if steps is None:
            raise ModelError(
                f"{model_path.name} has operators whose shapes depend on data, which run on the CPU only; "
                "tune it with --target host"
            )
        provenance: dict[str, Any] = {
            "model": model_path.name,
            "sha256": sha256(model_path),
            "kernels": _summary(chosen),
        }
        if not options.device:
            provenance["unverified"] = NOT_RUN
        ready = replace(ready, weights=steps.weights)

        def moved(place: Path) -> None:
            library.replace(place)

        write_artifact(out, ready, plan, steps, identity(program, plan), provenance, moved)
    return chosen


def _plan(program: Program, target: Target, log: TuningLog, chosen: dict[str, Chosen]) -> Plan:
    choices = []
    for task in program.tasks:
        config = chosen[symbol_of(task.key)].config
        key = record_key(task, program.spaces[task.key], target)
        measured = next((r for r in log.fastest(key, FASTEST) if r.config == config), None)
        choices.append(Choice(task.key, config, None if measured is None else measured.measurement.latency_s))
    return Plan(target, tuple(sorted(choices, key=lambda choice: choice.task)))


def _summary(chosen: dict[str, Chosen]) -> dict[str, list[dict[str, int]]]:
    """What ptxas made of every kernel, for the manifest."""
    return {
        symbol: [
            {"registers": k.registers, "shared_bytes": k.shared_bytes, "local_bytes": k.local_bytes}
            for k in item.kernels
        ]
        for symbol, item in chosen.items()
    }
