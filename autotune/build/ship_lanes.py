"""From tuned kernels to a verified artifact on several lanes, where that is faster than one lane."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import tvm

from autotune.artifact.directory import identity, lane_library, write_artifact
from autotune.artifact.manifest import annotate, sha256
from autotune.artifact.plan import Plan
from autotune.artifact.replacement import install
from autotune.backends.cpu.linking import link_kernels
from autotune.backends.executor import Tensors
from autotune.build.lane_kernels import RACE_S, WORTH, Built, Kind, Ledger, Placing, build_kinds, placings
from autotune.build.ship import LATENCY, Shipped, Shipping, ship
from autotune.graph.lanes import Lane
from autotune.graph.steps import WHOLE, Piece, Steps, arrange
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import compare, complaint, random_inputs, reference_outputs
from schedules.errors import MissingRecordError, VerificationError
from schedules.lower import EXACT, MOST_LOSSY

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LaneShipping:
    """What shipping on lanes needs.

    Attributes:
        job: as for one lane.
        kinds: threads of a lane → how kernels for it are built.
        lanes: what may be used.
        text: the option that named them.
    """

    job: Shipping
    kinds: Mapping[int, Kind]
    lanes: tuple[Lane, ...]
    text: str

    @property
    def must(self) -> bool:
        """Whether the lanes were asked for by name, so that one lane of all threads is no answer."""
        return self.job.target.threads not in self.kinds


def place_and_ship(out: Path, job: Shipping, kinds: Mapping[int, Kind], lanes: tuple[Lane, ...]) -> Shipped:
    """Put the best artifact at ``out``: on one lane, or on several where that was asked for or is faster.

    Args:
        kinds: threads of a lane → how kernels for it are built; those of all threads may stand alone.

    Raises:
        AutotuneError: as ``ship`` and ``ship_lanes``.
    """
    shipping = LaneShipping(job, kinds, lanes, job.options.lanes)
    one_lane = None if shipping.must else ship(out, job)
    if one_lane is not None and (len(kinds) == 1 or job.hurry):
        return one_lane
    try:
        return ship_lanes(out, shipping, one_lane) or one_lane or _impossible(out)
    except MissingRecordError:
        if one_lane is None:
            raise
        logger.warning("the log has no profile of this model on several lanes: it is built for one")
        return one_lane


def _impossible(out: Path) -> NoReturn:
    raise AssertionError(f"nothing was shipped to {out}")


def ship_lanes(out: Path, shipping: LaneShipping, one_lane: Shipped | None) -> Shipped | None:
    """Put the fastest placement at ``out``; None if that is one lane, which is left to be what ``out`` has.

    Plans that give up accuracy for speed are tried first, as in ``ship``.

    Args:
        one_lane: what is at ``out``; None if nothing was shipped yet.

    Raises:
        MissingRecordError: if nothing may be measured and records or profiles are missing.
        VerificationError: if no placement's outputs pass; ``out`` is left as it was.
    """
    job = shipping.job
    began = time.perf_counter()
    feed = random_inputs(job.program.inputs, job.options.seed)
    reference, expected = reference_outputs(job.model, feed)
    verify_s = time.perf_counter() - began
    complaints: dict[tuple[str, ...], str] = {}
    for most_loss in range(MOST_LOSSY, EXACT - 1, -1):
        plans = {threads: kind.plan(job.log, job.options.frozen, most_loss) for threads, kind in shipping.kinds.items()}
        digests = tuple(plan.digest for plan in plans.values())
        if digests in complaints:
            continue
        with tempfile.TemporaryDirectory(prefix="tune-lanes-") as folder:
            built = build_kinds(shipping.kinds, plans, shipping.lanes, _tensors(feed), Path(folder))
            chosen = _choose(built, shipping)
            if chosen is None:
                return None
            with _beside(out, shipping, built, *chosen) as (path, plan):
                began = time.perf_counter()
                verdict = compare(reference, InferenceSession(path).run(None, feed), expected)
                verify_s += time.perf_counter() - began
                if verdict.passed:
                    untuned = one_lane.latency_ms.get("untuned") if one_lane else None
                    measured = chosen[0].measured_s
                    latency = {"untuned": untuned, "tuned": None if measured is None else 1e3 * measured}
                    annotate(path, {LATENCY: latency})
                    install(path, out)
                    return Shipped(plan, verdict, latency, verify_s)
        complaints[digests] = complaint(out, verdict, job.options.seed)
        logger.warning("%s", complaints[digests])
    if one_lane is not None:
        return None
    raise VerificationError(next(reversed(complaints.values())))


def _tensors(feed: Mapping[str, Any]) -> Tensors:
    return [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in feed.values() if array.size]


def _choose(built: Built, shipping: LaneShipping) -> tuple[Placing, float | None] | None:
    """The fastest placement and the seconds of one lane beside it; None if one lane it should be."""
    job = shipping.job
    ledger = Ledger(job.log, job.target, job.options.frozen)
    found = placings(built, ledger)
    one = None if shipping.must else _one_lane(built, job.target.threads)
    # A placement that uses nothing but the one lane is that, and nothing to measure.
    several = [placing for placing in found if shipping.must or len(placing.lanes_used) > 1]
    if not several:
        return None
    candidates = [*(placing.steps for placing in several), *([one] if one is not None else [])]
    times = _times(built, ledger, candidates)
    best = min(range(len(several)), key=lambda index: times[index])
    one_lane_s = times[-1] if one is not None else None
    for placing, seconds in zip(several, times, strict=False):
        told = (len(placing.subgraphs), 1e3 * max(end for _, end in placing.spans), 1e3 * seconds)
        logger.debug("%d subgraphs: predicted %.3g ms, took %.3g ms", *told)
    if one_lane_s is not None and one_lane_s < WORTH * times[best]:
        logger.info("one lane takes %.3g ms, several %.3g ms: one it is", 1e3 * one_lane_s, 1e3 * times[best])
        return None
    return replace(several[best], measured_s=times[best]), one_lane_s


def _one_lane(built: Built, threads: int) -> Steps:
    wide = next(index for index, lane in enumerate(built.lanes) if lane.threads == threads)
    return arrange(built.flats, [Piece(WHOLE, tuple(range(len(built.flat.calls))), wide)], built.lanes)


def _times(built: Built, ledger: Ledger, candidates: Sequence[Steps]) -> list[float]:
    """Seconds of each, from the log if all are there, else measured in turn."""
    names = [_name(built, steps) for steps in candidates]
    known = [ledger.known("model", name) for name in names]
    found = [seconds for seconds in known if seconds is not None]
    if ledger.frozen and len(found) < len(known):
        raise MissingRecordError(
            f"the log lacks {len(known) - len(found)} of {len(known)} timings of the whole model on these lanes; "
            "tune with the same --lanes first, or build with --lanes cpu"
        )
    if ledger.frozen:
        return found
    times = built.bench.end_to_end(candidates, RACE_S)
    for name, seconds in zip(names, times, strict=True):
        ledger.keep("model", name, seconds)
    return times


def _name(built: Built, steps: Steps) -> str:
    kernels = "\n".join(plan.digest for plan in built.plans.values())
    placed = repr((steps.lanes, steps.groups, [call.symbol for call in steps.calls]))
    return hashlib.sha256(f"{kernels}\n{placed}".encode()).hexdigest()[:16]


@contextmanager
def _beside(
    out: Path, shipping: LaneShipping, built: Built, placing: Placing, one_lane_s: float | None
) -> Iterator[tuple[Path, Plan]]:
    """The artifact of a placement, in a folder beside ``out`` that is gone afterwards, and its plan."""
    job = shipping.job
    main = job.target.threads if job.target.threads in built.plans else max(built.plans)
    lanes = placing.to_plan(shipping.text, built.plans, job.target.threads, one_lane_s)
    plan = Plan(job.target, built.plans[main].choices, lanes)
    path = out.with_name(f".{out.name}-{plan.digest[:8]}")
    provenance: dict[str, Any] = {"model": job.path.name, "sha256": sha256(job.path)}
    program = replace(job.program, weights=placing.steps.weights)
    digest = identity(job.program, plan)
    try:
        write_artifact(
            path,
            program,
            plan,
            placing.steps,
            digest,
            provenance,
            partial(_link, built, placing.steps, job.target.threads),
        )
        yield path, plan
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _link(built: Built, steps: Steps, target_threads: int, library: Path) -> None:
    """Write a library per size of lane, each with the kernels that such lanes call."""
    calls = iter(steps.calls)
    used: dict[int, set[str]] = {target_threads: set()}
    for group in steps.groups:
        symbols = used.setdefault(steps.lanes[group.lane].threads, set())
        symbols.update(next(calls).symbol for _ in range(group.calls))
    for lane in steps.lanes:  # every lane that is named needs its library, even if it runs nothing
        used.setdefault(lane.threads, set())
    for threads, symbols in used.items():
        kernels = {symbol: built.objects[threads][symbol] for symbol in sorted(symbols)}
        link_kernels(kernels, library if threads == target_threads else library.with_name(lane_library(threads)))
