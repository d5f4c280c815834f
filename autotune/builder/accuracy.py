"""Candidates for an artifact are compared with the reference, the fastest first; the first that passes is taken."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx

from autotune.artifact.plan import Plan
from autotune.validation.reference_runs import Reference
from autotune.validation.verdict import Verdict
from autotune.validation.verify import compare_artifact, complaint, difference
from schedules.errors import VerificationError
from schedules.lower import EXACT, MOST_LOSSY

logger = logging.getLogger(__name__)

LEVELS = range(MOST_LOSSY, EXACT - 1, -1)
"""How much accuracy a plan may give up (``schedules.lower.loss``), most first. The last level only reorders sums."""


@dataclass(frozen=True)
class Built:
    """An artifact that may be installed.

    Attributes:
        path: where it was built.
        latency_ms: of the whole model, if it was measured already; None if not.
    """

    path: Path
    plan: Plan
    latency_ms: float | None = None


@dataclass(frozen=True)
class Passed:
    """The artifact that passed.

    Attributes:
        verify_s: seconds that comparing all candidates took.
    """

    artifact: Built
    verdict: Verdict
    verify_s: float


def first_that_passes(out: Path, model: onnx.ModelProto, seed: int, candidates: Iterable[Built]) -> Passed | None:
    """The first of ``candidates`` whose outputs are the reference's; None if there are no candidates.

    Args:
        out: what the artifact is called in messages.
        model: the reference engine runs it.
        seed: of the random inputs.
        candidates: each is built when it is reached.

    Raises:
        VerificationError: if outputs of all candidates differ by more than is allowed.
    """
    failed: Verdict | None = None
    verify_s, reference = 0.0, Reference(model)
    for candidate in candidates:
        if failed is not None:
            logger.warning("%s; it is built again of other kernels", difference(out, failed))
        began = time.perf_counter()
        verdict = compare_artifact(candidate.path, reference, seed)
        verify_s += time.perf_counter() - began
        if verdict.passed:
            return Passed(candidate, verdict, verify_s)
        failed = verdict
    if failed is not None:
        raise VerificationError(complaint(out, failed, seed))
    return None
