"""Candidates for an artifact are compared with the reference, the fastest first; the first that passes is taken.

Each runs in a process of its own: kernels that were guessed, or measured elsewhere, may crash.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx

from autotune.artifact.plan import Plan
from autotune.builder.isolated_session import CrashError, compare_isolated, run_isolated
from autotune.host.worker_pool import ForkServerProcess
from autotune.validation.reference_runs import Reference
from autotune.validation.verdict import Verdict
from autotune.validation.verify import difference
from schedules.lower import EXACT, MOST_LOSSY
from schedules.vocabulary.errors import VerificationError

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
        verdict: None where nothing was compared.
        verify_s: seconds that comparing all candidates took.
    """

    artifact: Built
    verdict: Verdict | None
    verify_s: float


def first_that_passes(
    out: Path,
    model: onnx.ModelProto,
    seed: int,
    candidates: Iterable[Built],
    server: ForkServerProcess | None = None,
    compared: bool = True,
) -> Passed | None:
    """The first of ``candidates`` whose outputs are the reference's; None if there are no candidates.

    Args:
        out: what the artifact is called in messages.
        model: the reference engine runs it.
        seed: of the random inputs.
        candidates: each is built when it is reached.
        server: of the run, whose forks open artifacts; None starts one for each.
        compared: whether outputs are compared; if not, the first that runs passes.

    Raises:
        VerificationError: if each candidate crashed, or its outputs differ by more than is allowed.
    """
    failed = ""
    verify_s, reference = 0.0, Reference(model)
    for candidate in candidates:
        if failed:
            logger.warning("%s; it is built again of other kernels", failed)
        began = time.perf_counter()
        try:
            if not compared:
                run_isolated(candidate.path, seed, server)
                return Passed(candidate, None, time.perf_counter() - began)
            verdict = compare_isolated(candidate.path, reference, seed, server)
        except CrashError as error:
            failed = f"{out} does not run: {error}"
            continue
        finally:
            verify_s += time.perf_counter() - began
        if verdict.passed:
            return Passed(candidate, verdict, verify_s)
        failed = difference(out, verdict)
    if failed:
        raise VerificationError(f"{failed}; report the model and --seed {seed}")
    return None
