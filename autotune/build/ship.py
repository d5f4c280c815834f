"""From a log to a verified artifact on disk that is no slower than what the machine had."""

from __future__ import annotations

import logging
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from autotune.artifact.directory import annotate, install, read_artifact
from autotune.artifact.plan import Choice, Plan, make_plan
from autotune.backends.cpu.cpu_build import build_artifact, is_built
from autotune.importer.program import Program
from autotune.measure.measurer import Workshop
from autotune.options import Options
from autotune.runtime.plain_session import InferenceSession
from autotune.validation.verify import Verdict, compare, complaint, random_inputs, reference_outputs
from schedules.errors import VerificationError
from schedules.lower import BASELINE, EXACT, MOST_LOSSY
from schedules.target import Target
from tuning_logs.store import LogStore

logger = logging.getLogger(__name__)

LATENCY = "latency_ms"
"""Provenance field: the whole model's latency, untuned and tuned."""

TIMED_S = 0.6
LEAST_RUNS = 5


@dataclass(frozen=True)
class Shipping:
    """What shipping needs.

    Attributes:
        model: the checked ONNX model, the reference.
        program: it, imported.
        workshop: compiles kernels.
        hurry: the run was interrupted: verify, but leave the timing to the next run.
    """

    model: onnx.ModelProto
    program: Program
    target: Target
    log: LogStore
    workshop: Workshop
    path: Path
    options: Options
    hurry: bool = False


@dataclass(frozen=True)
class Shipped:
    """What is on disk now.

    Attributes:
        verdict: its outputs against the reference's.
        latency_ms: ``untuned`` and ``tuned``, each the median of the whole model.
        verify_s: seconds of this that went into checking and timing.
    """

    plan: Plan
    verdict: Verdict
    latency_ms: dict[str, float | None]
    verify_s: float = 0.0


def ship(out: Path, job: Shipping) -> Shipped:
    """Put the best plan whose outputs pass at ``out``; what is there stays if it is that already.

    Plans that trade accuracy for speed are tried first; if outputs differ by more than the tolerances, configs that
    lose less take their place, down to those that only reorder sums.

    Raises:
        MissingRecordError: if the options forbid measuring and records are missing.
        VerificationError: if not even the exact plan passes; ``out`` is left as it was.
    """
    began = time.perf_counter()
    feed = random_inputs(job.program.inputs, job.options.seed)
    reference, expected = reference_outputs(job.model, feed)
    verify_s = time.perf_counter() - began
    complaints: dict[str, str] = {}
    for most_loss in range(MOST_LOSSY, EXACT - 1, -1):
        plan = make_plan(job.program.tasks, job.program.spaces, job.target, job.log, job.options.frozen, most_loss)
        if plan.digest in complaints:
            continue
        with _candidate(out, job, plan) as path:
            began = time.perf_counter()
            verdict = compare(reference, InferenceSession(path).run(None, feed), expected)
            verify_s += time.perf_counter() - began
            if verdict.passed:
                shipped = _settle(out, path, job, plan, verdict, lambda session: median_ms(session, feed))
                return replace(shipped, verify_s=verify_s)
        complaints[plan.digest] = complaint(out, verdict, job.options.seed)
        logger.warning("%s", complaints[plan.digest])
    raise VerificationError(next(reversed(complaints.values())))


@contextmanager
def _candidate(out: Path, job: Shipping, plan: Plan) -> Iterator[Path]:
    """Where the artifact of ``plan`` is: ``out`` if that is it, else a folder beside it that is gone afterwards."""
    if is_built(out, job.program, plan):
        yield out
        return
    beside = out.with_name(f".{out.name}-{plan.digest[:8]}")
    try:
        build_artifact(beside, job.program, plan, job.path, job.workshop)
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _settle(
    out: Path, path: Path, job: Shipping, plan: Plan, verdict: Verdict, time_ms: Callable[[InferenceSession], float]
) -> Shipped:
    """Time a verified artifact, once, against the untuned build, and put the faster one at ``out``."""
    known = read_artifact(path).provenance.get(LATENCY)
    if isinstance(known, dict):
        return Shipped(plan, verdict, known)
    latency: dict[str, float | None] = {"untuned": None, "tuned": None}
    if job.hurry:
        install(path, out)
        return Shipped(plan, verdict, latency)
    latency["tuned"] = time_ms(InferenceSession(path))
    untuned = Plan(job.target, tuple(Choice(choice.task, BASELINE, None) for choice in plan.choices))
    if job.options.frozen or untuned.digest == plan.digest:
        annotate(path, {LATENCY: latency})
        install(path, out)
        return Shipped(plan, verdict, latency)
    with _candidate(out, job, untuned) as other:
        untuned_ms = time_ms(InferenceSession(other))
        latency["untuned"] = untuned_ms
        if latency["tuned"] is not None and untuned_ms < latency["tuned"]:
            logger.warning(
                "nothing beat the untuned build (%.3g ms, tuned %s ms): it is shipped", untuned_ms, latency["tuned"]
            )
            plan, path, latency["tuned"] = untuned, other, untuned_ms
        annotate(path, {LATENCY: latency})
        install(path, out)
    return Shipped(plan, verdict, latency)


def median_ms(session: InferenceSession, feed: dict[str, Any]) -> float:
    """Median latency of the whole model in milliseconds, over some half a second after a warm-up."""
    session.run(None, feed)
    runs: list[float] = []
    deadline = time.perf_counter() + TIMED_S
    while len(runs) < LEAST_RUNS or time.perf_counter() < deadline:
        began = time.perf_counter()
        session.run(None, feed)
        runs.append(time.perf_counter() - began)
    return statistics.median(runs[len(runs) // 5 :]) * 1e3
