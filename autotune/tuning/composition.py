"""Models that are tuned in several parts: split into parts, tune each, compose one artifact of the results."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from autotune.artifact.replacement import install, scratch_beside
from autotune.events import Observer
from autotune.tuning.result import PhaseClock, Result, combined
from autotune.tuning.run_plan import PartJob
from schedules.vocabulary.errors import VerificationError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Composed:
    """The artifact composed of the parts' results.

    Attributes:
        artifact: in the scratch folder; None where the artifact that is in place already is the same.
        fields: of the ``Result`` of the whole that are not those of its parts taken together.
    """

    artifact: Path | None
    fields: Mapping[str, Any] = field(default_factory=dict)


class Composition(Protocol):
    """One way to make an artifact of several tuned parts."""

    def parts(self, folder: Path) -> Iterable[PartJob]:
        """Yield the parts to tune, in order. Each is tuned before the next one is asked for, which may depend on it.

        Args:
            folder: a scratch folder for files and artifacts of parts.

        Raises:
            ModelError: if the model cannot be split.
        """
        ...

    def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
        """One verified artifact of what came of the parts.

        Args:
            results: of every part in the order of ``parts``; None for one that was left out.

        Raises:
            VerificationError: if the whole is wrong.
        """
        ...


TunePart = Callable[[PartJob, Observer, bool], Result | None]
"""(part, observer, whether Ctrl-C stopped an earlier part) → what came of it; None if it was left out."""


def tune_composition(
    composition: Composition, out: Path, tune: TunePart, observe: Observer, interrupted: bool = False
) -> Result:
    """Tune every part of ``composition`` and put the artifact of the whole at ``out``.

    Parts that were not compared with the reference are, should the whole be wrong: they are built again, of other
    kernels where theirs are wrong, without any measurement, and put together once more.

    Args:
        interrupted: whether Ctrl-C stopped something before it.

    Raises:
        AutotuneError: as ``tune`` and ``Composition``; ``out`` is left as it was.
    """
    clock = PhaseClock(observe)
    with scratch_beside(out) as folder:
        results: list[Result | None] = []
        jobs: list[PartJob] = []
        parts = iter(composition.parts(folder))
        while (job := _next(parts, clock)) is not None:
            jobs.append(job)
            results.append(tune(job, observe, interrupted))
            interrupted = interrupted or any(result.interrupted for result in results if result is not None)
        try:
            composed = _composed(composition, folder, results, clock)
        except VerificationError as error:
            unsure = [number for number, job in enumerate(jobs) if not job.compared and results[number] is not None]
            if not unsure:
                raise
            logger.warning("%s; its parts are compared one by one", error)
            for number in unsure:
                results[number] = _compared(jobs[number], results[number], tune, observe, interrupted)
            composed = _composed(composition, folder, results, clock)
        if composed.artifact is not None:
            install(composed.artifact, out)
    tuned = [result for result in results if result is not None]
    places = [out / result.artifact.name for result in tuned]
    if all(place.is_dir() for place in places):  # the parts are in the whole
        tuned = [replace(result, artifact=place) for result, place in zip(tuned, places, strict=True)]
    whole = combined(tuned)
    phase_s = {name: seconds + clock.phase_s[name] for name, seconds in whole.phase_s.items()}
    return replace(whole, artifact=out, phase_s=phase_s, **composed.fields)


def _next(parts: Iterator[PartJob], clock: PhaseClock) -> PartJob | None:
    """The next part, which may be imported before it is handed over; None after the last."""
    began = time.perf_counter()
    try:
        return next(parts, None)
    finally:
        clock.phase_s["import"] += time.perf_counter() - began


def _composed(composition: Composition, folder: Path, results: Sequence[Result | None], clock: PhaseClock) -> Composed:
    """The whole. What its sizes may be is found out from the reference, and it is compared as a whole."""
    with clock.phase("verify"):
        return composition.compose(folder, results)


def _compared(
    job: PartJob, first: Result | None, tune: TunePart, observe: Observer, interrupted: bool
) -> Result | None:
    """A part's result, with an artifact that was compared with the reference; nothing is measured again."""
    options = replace(job.options, trials=0, peer=False) if job.options.searches else job.options
    again = tune(replace(job, options=options, compared=True), observe, interrupted)
    if first is None or again is None:
        return again
    return replace(first, latency_ms=again.latency_ms, verified=again.verified)
