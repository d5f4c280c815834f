"""What is tuned in several parts: split into parts, tune each, compose one artifact of what came of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from autotune.artifact.replacement import install, scratch_beside
from autotune.builder.imported_model import ImportedModel
from autotune.events import Observer
from autotune.options import Options
from autotune.tuning.result import Result, combined

MIN_BUDGET_S = 1.0
"""Least budget of a part in seconds; a slot takes about as long."""


@dataclass(frozen=True)
class PartJob:
    """One model to tune, with one set of shapes for one target.

    Attributes:
        model: its ONNX file.
        options: with its own share of the budget, its target, and the place for its artifact.
        optional: whether a target that cannot run it leaves it out, instead of ending the run.
        weight: how much one inference of it counts compared with one of the models that share its budget.
        imported: the model, where other parts of the run want it too.
    """

    model: Path
    options: Options
    optional: bool = False
    weight: int = 1
    imported: ImportedModel | None = None


@dataclass(frozen=True)
class Composed:
    """What came of the parts.

    Attributes:
        artifact: in the scratch folder; None where the artifact that is in place already is the same.
        parts: where each part's artifact lies once the whole is installed, in the order of the jobs.
        fields: of the ``Result`` of the whole that are not those of its parts taken together.
    """

    artifact: Path | None
    parts: tuple[Path, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


class Composition(Protocol):
    """One way to make an artifact of several tuned parts."""

    def parts(self, folder: Path) -> Iterable[PartJob]:
        """What is to be tuned, in order. Each is tuned before the next one is asked for, which may depend on it.

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


def tune_composition(composition: Composition, out: Path, tune: TunePart, observe: Observer) -> Result:
    """Tune every part of ``composition`` and put the artifact of the whole at ``out``.

    Raises:
        AutotuneError: as ``tune`` and ``Composition``; ``out`` is left as it was.
    """
    with scratch_beside(out) as folder:
        results: list[Result | None] = []
        for job in composition.parts(folder):
            interrupted = any(result.interrupted for result in results if result is not None)
            results.append(tune(job, observe, interrupted))
        composed = composition.compose(folder, results)
        if composed.artifact is not None:
            install(composed.artifact, out)
    tuned = [result for result in results if result is not None]
    if composed.parts:
        tuned = [replace(result, artifact=place) for result, place in zip(tuned, composed.parts, strict=True)]
    return replace(combined(tuned), artifact=out, **composed.fields)


def part_options(options: Options, share: float, out: Path, inputs: Mapping[str, tuple[int, ...]]) -> Options:
    """The options of one part of a run.

    Args:
        share: of the whole run's budget and trials. Trials are rounded up, so that no part is left without any.
    """
    # 1/3 of 3 must not become 2 because 1/3 is a bit more than that in floating point.
    trials = None if options.trials is None else math.ceil(share * options.trials - 1e-9)
    return replace(
        options,
        out=out,
        inputs=dict(inputs),
        shapes=(),
        fallback=None,
        budget_s=max(MIN_BUDGET_S, share * options.seconds) if options.searches else options.budget_s,
        trials=trials,
    )
