"""The best kernels of a log → a verified artifact for one lane that is no slower than the untuned build."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import annotate
from autotune.artifact.plan import Choice, Plan
from autotune.artifact.replacement import install, scratch_beside
from autotune.backends.cpu.cpu_build import build_artifact, is_built
from autotune.builder.accuracy import LEVELS, Built
from autotune.builder.build_request import LATENCY, BuildRequest, BuildResult, LaneKernels
from autotune.measure.measurer import Candidate
from autotune.runtime.model_timing import TIMED_S, Run, is_faster, median_s, session_run
from autotune.runtime.session import InferenceSession
from autotune.validation.bisect import wrong_tasks
from autotune.validation.verify import session_inputs
from schedules.config import Config
from schedules.lower import BASELINE
from schedules.vocabulary.errors import CompileError, first_line

logger = logging.getLogger(__name__)

NOT_RUN = (
    "built for another machine, so none of its kernels has ever run: neither its outputs nor its speed are known; "
    "check it there with 'tune verify' or the test program of 'tune export --format c'"
)

NOT_COMPARED = (
    "built for another machine: its kernels were measured there and compared with the untuned ones, its outputs with "
    "nothing; check it there with 'tune verify' or the test program of 'tune export --format c'"
)


def build_on_one_lane(request: BuildRequest, kernels: LaneKernels) -> BuildResult:
    """Install the best plan whose outputs pass; what is at ``request.out`` stays if it is that already.

    Plans that give up accuracy for speed are tried first, then plans that give up less.

    Args:
        kernels: for all threads.

    Raises:
        MissingRecordError: if the options forbid measuring and records are missing.
        VerificationError: if not even the exact plan passes; ``request.out`` is left as it was.
    """
    with scratch_beside(request.out) as folder:
        candidates = _candidates(request, kernels, folder)
        passed = request.first_that_passes(candidates)
        assert passed is not None  # there is always a plan
        result = BuildResult(passed.artifact.plan, passed.verdict, {}, passed.verify_s)
        return _settled(request, kernels, passed.artifact.path, result, folder)


def build_unseen(request: BuildRequest, kernels: LaneKernels) -> BuildResult:
    """Install an artifact for a machine that is not this one: of the log's records and of guesses, and never run here.

    Args:
        kernels: for all threads.

    Raises:
        MissingRecordError: if the options forbid guesses and records are missing.
    """
    plan = kernels.guessed_plan(request.log, request.options.frozen)
    with scratch_beside(request.out) as folder:
        path = _built(request, kernels, plan, folder)
        reason = NOT_COMPARED if request.options.remote else NOT_RUN
        annotate(path, {"unverified": reason})
        install(path, request.out)
    return BuildResult(plan, None, {}, reason=reason)


def _candidates(request: BuildRequest, kernels: LaneKernels, folder: Path) -> Iterator[Built]:
    """Builds to try, none twice."""
    seen = set[str]()
    for plan in _plans(request, kernels):
        if plan.digest in seen:
            continue
        seen.add(plan.digest)
        built = _without_broken_guesses(request, kernels, plan, folder)
        seen.add(built.plan.digest)
        yield built
    yield from _last_resorts(request, kernels, built, folder, seen)


def _last_resorts(
    request: BuildRequest, kernels: LaneKernels, failed: Built, folder: Path, seen: AbstractSet[str]
) -> Iterator[Built]:
    """``failed``, whose outputs are wrong, with untuned kernels for the tasks that are; then all of it untuned."""
    assert kernels.measurer is not None
    tuned = {choice.task for choice in failed.plan.choices if choice.config != BASELINE}
    wrong = (
        wrong_tasks(failed.path, kernels.program, request.options.seed, kernels.measurer) & tuned if tuned else set()
    )
    for tasks in (wrong, tuned):
        plan = _untuned(failed.plan, tasks)
        if tasks and plan.digest not in seen:
            names = ", ".join(task.name for task in kernels.program.tasks if task.key in tasks)
            logger.warning("built untuned, since other kernels give wrong numbers: %s", first_line(names))
            yield Built(_built(request, kernels, plan, folder), plan)
            seen = {*seen, plan.digest}


def _plans(request: BuildRequest, kernels: LaneKernels) -> Iterator[Plan]:
    """Tasks that the budget did not reach by guesses first, since a template's first guess is mostly far ahead of the
    untuned program; then without the guesses that the check of measured kernels rejects, should the whole not pass;
    then by guesses that give up less accuracy. Only if none of these passes, none is guessed; and at last,
    records of the log that fail here are not used either.
    """
    right: dict[tuple[str, Config], bool] = {}
    for most_loss in LEVELS:
        guessed = kernels.guessed_plan(request.log, request.options.frozen, most_loss)
        yield guessed
        yield _without_wrong(kernels, guessed, _guesses(guessed), right)
    for most_loss in LEVELS:
        known = kernels.plan(request.log, request.options.frozen, most_loss)
        yield known
    yield _without_wrong(kernels, known, {choice.task for choice in known.choices if choice.config != BASELINE}, right)


def _guesses(plan: Plan) -> set[str]:
    """Tasks whose kernels in ``plan`` were never measured."""
    return {choice.task for choice in plan.choices if choice.config != BASELINE and choice.latency_s is None}


def _untuned(plan: Plan, tasks: AbstractSet[str]) -> Plan:
    """``plan`` with ``tasks`` built untuned."""
    choices = (replace(choice, config=BASELINE) if choice.task in tasks else choice for choice in plan.choices)
    return replace(plan, choices=tuple(choices))


def _without_wrong(
    kernels: LaneKernels, plan: Plan, suspected: AbstractSet[str], right: dict[tuple[str, Config], bool]
) -> Plan:
    """``plan``, of which something is wrong, with untuned kernels in place of those that fail by themselves.

    Args:
        suspected: keys of the tasks whose kernels are checked, in a process that they may crash.
        right: (task, config) → whether the kernel passed, of those that were checked; new ones are added.
    """
    assert kernels.measurer is not None
    wrong = set[str]()
    for task in (task for task in kernels.program.tasks if task.key in suspected):
        guess = task.key, plan.config(task.key)
        if guess not in right:
            (measured,) = kernels.measurer.measure([Candidate(task, kernels.program.programs[task.key], guess[1])])
            right[guess] = measured.ok
            if not measured.ok:
                logger.warning("%s is built untuned; its kernel fails: %s", task.name, measured.message)
        if not right[guess]:
            wrong.add(task.key)
    return _untuned(plan, wrong)


def _without_broken_guesses(request: BuildRequest, kernels: LaneKernels, plan: Plan, folder: Path) -> Built:
    """The artifact of ``plan``, with untuned kernels in place of guesses, and of tuned ones, that do not compile.

    Raises:
        CompileError: if an untuned kernel does not compile.
    """
    while True:
        try:
            return Built(_built(request, kernels, plan, folder), plan)
        except CompileError as error:
            tuned = {choice.task for choice in plan.choices if choice.config != BASELINE}
            guessed = _guesses(plan)
            broken = tuned.intersection(error.tasks) if error.tasks else guessed or tuned
            if not broken:
                raise
            logger.warning(
                "%d of %d kernels are built untuned, since what was chosen for them does not compile; 'tune run' with "
                "a longer --budget measures others (%s)",
                len(broken),
                len(plan.choices),
                error,
            )
            plan = _untuned(plan, broken)


def _built(request: BuildRequest, kernels: LaneKernels, plan: Plan, folder: Path) -> Path:
    """The artifact of ``plan``: ``request.out`` if that is it, else one in ``folder``."""
    if is_built(request.out, kernels.program, plan):
        return request.out
    assert kernels.measurer is not None
    path = folder / plan.digest
    build_artifact(path, kernels.program, plan, request.path, kernels.measurer)
    return path


def _settled(request: BuildRequest, kernels: LaneKernels, path: Path, result: BuildResult, folder: Path) -> BuildResult:
    """Time the verified artifact at ``path`` against the untuned build, and install the faster one."""
    known = read_artifact(path).provenance.get(LATENCY)
    if isinstance(known, dict):
        return replace(result, latency_ms=known)
    if not request.timed:
        install(path, request.out)
        return replace(result, latency_ms={"untuned": None, "tuned": None})
    tuned_run, untuned_ms = _run_of(path, request.options.seed), None
    tuned_ms = 1e3 * median_s(tuned_run, TIMED_S)
    untuned = Plan(request.target, tuple(Choice(choice.task, BASELINE, None) for choice in result.plan.choices))
    if not request.options.frozen and untuned.digest != result.plan.digest:
        other = _built(request, kernels, untuned, folder)
        untuned_run = _run_of(other, request.options.seed)
        untuned_ms = 1e3 * median_s(untuned_run, TIMED_S, tuned_ms / 1e3)
        # Another process may have slowed one of the two timings.
        if untuned_ms < tuned_ms and is_faster(untuned_run, tuned_run):
            logger.warning(
                "the untuned build is the fastest (%.3g ms, tuned %.3g ms): it is installed", untuned_ms, tuned_ms
            )
            path, tuned_ms, result = other, untuned_ms, replace(result, plan=untuned)
    latency = {"untuned": untuned_ms, "tuned": tuned_ms}
    annotate(path, {LATENCY: latency})
    install(path, request.out)
    return replace(result, latency_ms=latency)


def _run_of(path: Path, seed: int) -> Run:
    session = InferenceSession(path)
    return session_run(session, session_inputs(session, seed))
