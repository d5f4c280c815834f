"""Several models under one budget: their weighted latencies fall together, and each gets an artifact of its own.

A kernel that several models have is tuned once. Its weight is the sum over the models of the model's weight times how
often it runs the kernel, so one allocator deals the slots of all of them. Models that have parts of their own are tuned
one after the other, each with a share of the budget by its weight; kernels that they have in common are in the log.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from autotune.events import Observer
from autotune.options import Options
from autotune.tuning.composition import TunePart
from autotune.tuning.part import Measurers, tune_together
from autotune.tuning.result import Result, combined
from autotune.tuning.run_plan import PartJob, RunPlan, shared_options
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import UsageError


def tune_portfolio(plan: RunPlan, tune: TunePart, observe: Observer, measurers: Measurers) -> Result:
    """Tune the models of ``plan`` under one budget.

    Args:
        tune: tunes one of them.

    Raises:
        UsageError: if ``--input`` names an input that no model has.
        AutotuneError: as ``tune``.
    """
    began = time.perf_counter()
    # The reference engine is not timed: the run has one progress display and several models.
    jobs = [replace(job, options=replace(job.options, peer=False)) for job in _with_shapes(plan.jobs)]
    whole = _together(plan, jobs, observe, measurers) if plan.searches_together else _in_turn(jobs, tune, observe)
    weights = tuple(job.weight for job in jobs)
    return replace(
        whole,
        model=", ".join(job.model.name for job in jobs),
        artifact=plan.options.out if plan.options.out is not None else Path(),
        weights=weights,
        elapsed_s=time.perf_counter() - began,
        latency_ms={name: _weighted_ms(name, whole.parts, weights) for name in ("untuned", "tuned")},
    )


def _together(plan: RunPlan, jobs: Sequence[PartJob], observe: Observer, measurers: Measurers) -> Result:
    """The models with one search for all of them."""
    tuned = tune_together(jobs, plan.options, observe, measurers=measurers)
    results = tuple(replace(result, remaining=None) for result in tuned.results)  # it is of all models together
    whole, first = combined(results), results[0].phase_s
    return replace(
        whole,
        # What the models share is counted once.
        tasks=tuned.tasks,
        measured_trials=sum(outcome.measured_trials for outcome in tuned.outcomes),
        failed_trials=sum(outcome.failed_trials for outcome in tuned.outcomes),
        reused_records=sum(outcome.reused_records for outcome in tuned.outcomes),
        phase_s={name: whole.phase_s[name] if name in ("build", "verify") else first[name] for name in first},
        remaining=tuned.outcomes[-1].remaining if tuned.outcomes else None,
        states=tuple(state for outcome in tuned.outcomes for state in outcome.after),
    )


def _in_turn(jobs: Sequence[PartJob], tune: TunePart, observe: Observer) -> Result:
    """The models one after the other."""
    total, results = sum(job.weight for job in jobs), list[Result]()
    for job in jobs:
        own = replace(job, options=shared_options(job.options, job.weight / total))
        result = tune(own, observe, any(result.interrupted for result in results))
        assert result is not None
        results.append(result)
    return combined(results)


def _weighted_ms(name: str, results: Sequence[Result], weights: Sequence[int]) -> float | None:
    """Weighted sum of the models' latencies in milliseconds; None where one was not measured."""
    total = 0.0
    for result, weight in zip(results, weights, strict=True):
        latency_ms = result.latency_ms.get(name)
        if latency_ms is None:
            return None
        total += weight * latency_ms
    return total if math.isfinite(total) else None


def _with_shapes(jobs: Sequence[PartJob]) -> list[PartJob]:
    """The jobs with the shapes of ``--input`` for inputs that their models have.

    Raises:
        UsageError: if no model has an input of that name.
    """
    options = jobs[0].options
    sets = options.shapes or (options.inputs,)
    wanted = dict.fromkeys(name for shapes in sets for name in shapes)
    if not wanted:
        return list(jobs)
    names = [_input_names(job.model) for job in jobs]
    every = sorted(set().union(*names))
    for name in wanted:
        if name not in every:
            near = did_you_mean(name, every)
            raise UsageError(f"--input {name}:… names no input of any model; {near}they are {', '.join(every)}")
    return [replace(job, options=_of_own(job.options, sets, own)) for job, own in zip(jobs, names, strict=True)]


def _of_own(options: Options, sets: Sequence[Mapping[str, tuple[int, ...]]], names: Collection[str]) -> Options:
    """``options`` with the shapes of the inputs ``names``; sets that differ in those of other models are one."""
    own: list[dict[str, tuple[int, ...]]] = []
    for shapes in sets:
        mine = {name: shape for name, shape in shapes.items() if name in names}
        own += [] if mine in own else [mine]
    return replace(options, inputs=own[0], shapes=tuple(own) if len(own) > 1 else ())


def _input_names(model: Path) -> set[str]:
    """Names of the inputs of an ONNX file; empty where it cannot be read, which its import says with the reason."""
    try:
        graph = onnx.load(model, load_external_data=False).graph
    except (OSError, DecodeError):
        return set()
    return {value.name for value in graph.input}
