"""From tuned kernels to a verified artifact: on one lane, on several where that is faster, or for a device."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from autotune.artifact.directory import write_artifact
from autotune.artifact.identity import identity
from autotune.artifact.manifest import annotate, sha256
from autotune.artifact.plan import Plan
from autotune.artifact.replacement import install, scratch_beside
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cpu.linking import link_lanes
from autotune.builder.accuracy import LEVELS, Built
from autotune.builder.build_request import LATENCY, BuildRequest, BuildResult
from autotune.builder.core_groups import CoreGroups, compile_lanes
from autotune.builder.device_build import build_for_device
from autotune.builder.one_lane import build_on_one_lane, build_unseen
from autotune.builder.placing import Fastest, fastest
from autotune.graph.steps import Steps
from autotune.host.machine import is_foreign
from autotune.validation.verify import random_inputs
from schedules.vocabulary.errors import MissingRecordError, VerificationError

logger = logging.getLogger(__name__)


def build_model(request: BuildRequest) -> BuildResult:
    """Build the best artifact of a log's records, verify it and install it at ``request.out``.

    Raises:
        MissingRecordError: if nothing may be measured and records or profiles are missing.
        VerificationError: if outputs differ from the reference's; ``request.out`` is left as it was.
        AutotuneError: if it cannot be built or written.
    """
    if not backend_of(request.target).has_lanes:
        return build_for_device(request)
    if not request.options.device or is_foreign(request.target.architecture):
        assert request.whole is not None  # other lanes cannot be priced, and are refused
        return build_unseen(request, request.whole)
    one_lane = None if request.whole is None else build_on_one_lane(request, request.whole)
    if one_lane is not None and (len(request.kernels) == 1 or not request.timed):
        return one_lane
    try:
        return _build_on_lanes(request, one_lane)
    except (MissingRecordError, VerificationError) as error:
        if one_lane is None:
            raise
        if isinstance(error, MissingRecordError):
            logger.warning("the log has no profile of this model on several lanes: it is built for one")
        return one_lane


def _build_on_lanes(request: BuildRequest, one_lane: BuildResult | None) -> BuildResult:
    """Install the fastest placement; where one lane is the fastest, ``one_lane``, which is installed, is kept."""
    with scratch_beside(request.out) as folder:
        candidates = _placed(request, folder)
        passed = request.first_that_passes(candidates)
        if passed is None:
            assert one_lane is not None  # without it there is always a placement
            return one_lane
        untuned = None if one_lane is None else one_lane.latency_ms.get("untuned")
        latency = {"untuned": untuned, "tuned": passed.artifact.latency_ms}
        annotate(passed.artifact.path, {LATENCY: latency})
        install(passed.artifact.path, request.out)
    return BuildResult(passed.artifact.plan, passed.verdict, latency, passed.verify_s)


def _placed(request: BuildRequest, folder: Path) -> Iterator[Built]:
    """The fastest placement of the plans of every level of accuracy, until one lane is faster."""
    options = request.options
    feed = random_inputs(request.program.inputs, options.seed)
    inputs = [np.ascontiguousarray(array) for array in feed.values() if array.size]
    seen = set[tuple[str, ...]]()
    for most_loss in LEVELS:
        plans = {size: own.plan(request.log, options.frozen, most_loss) for size, own in request.kernels.items()}
        digests = tuple(plan.digest for plan in plans.values())
        if digests in seen:
            continue
        seen.add(digests)
        with tempfile.TemporaryDirectory(prefix="tune-lanes-") as scratch:
            groups = compile_lanes(request, plans, inputs, Path(scratch))
            best = fastest(groups)
            if best.candidate.placed is None:
                return
            artifact = _written(request, groups, best, folder)
        yield artifact


def _written(request: BuildRequest, groups: CoreGroups, best: Fastest[Steps], folder: Path) -> Built:
    """The artifact of a placement, in ``folder``."""
    placed, steps, plans = best.candidate.placed, best.candidate.executable, groups.plans
    assert placed is not None
    whole = request.target.threads
    choices = {threads: plan.choices for threads, plan in plans.items() if threads != whole}
    lanes = replace(placed.plan(request.options.lanes, choices), one_lane_s=best.one_lane_s, measured_s=best.seconds)
    plan = Plan(request.target, plans[whole if whole in plans else max(plans)].choices, lanes)
    path = folder / plan.digest
    program = replace(request.program, weights=steps.weights)
    provenance = {"model": request.path.name, "sha256": sha256(request.path)}
    digest = identity(request.program, plan)
    write_artifact(path, program, plan, steps, digest, provenance, partial(link_lanes, groups.objects, steps, whole))
    return Built(path, plan, 1e3 * best.seconds)
