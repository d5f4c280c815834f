"""A model with operators that TVM cannot express: the rest is tuned, and ONNX Runtime runs those, if allowed.

Every tuned segment is an artifact of its own, with its share of the budget by arithmetic and the run's log. The whole
is compared with ONNX Runtime running the whole model.
"""

from __future__ import annotations

import logging
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import onnx

from autotune.artifact.chain import Link, is_chain, model_of, read_chain, segment_name, write_chain
from autotune.artifact.directory import install, read_manifest, scratch_beside, sha256
from autotune.importer.guarded_import import cut_model, import_model
from autotune.importer.onnx_model.segments import Segment
from autotune.options import Options
from autotune.runtime.segmented_session import ChainSession, onnxruntime_over
from autotune.tuning.parts import TunedPart, part_options
from autotune.validation.verify import Verdict, compare_session, complaint, session_inputs
from schedules.errors import ArtifactError, ModelError, VerificationError
from schedules.target import Target

logger = logging.getLogger(__name__)

RUNS = 15
"""Of the whole model, for its latency."""

LEAST_SHARE = 0.02
"""Of the budget, for a segment with hardly any arithmetic."""


T = TypeVar("T", bound=TunedPart)


@dataclass(frozen=True)
class Islanded:
    """What came of a model with islands.

    Attributes:
        operators: of every island, in order.
        verdict: of the whole model.
        latency_ms: of the whole model, islands and all; the median of a few runs. None after Ctrl-C.
    """

    operators: tuple[tuple[str, ...], ...]
    verdict: Verdict
    latency_ms: float | None


def needs_islands(model: Path, options: Options, target: Target) -> bool:
    """Whether the model cannot be imported as it is."""
    try:
        import_model(model, options.inputs, target)
    except ModelError:
        return True
    return False


def tune_around(
    model: Path, out: Path, options: Options, target: Target, tune: Callable[[Path, Options, bool], T]
) -> tuple[list[T], Islanded]:
    """Tune what of ``model`` can be, and put an artifact with islands at ``out``.

    One that is there already gives its segments with their history and latency, where their models are the same.

    Args:
        tune: tunes a model and builds its artifact; after Ctrl-C (True) without measuring anything.

    Returns:
        What ``tune`` returned for each tuned segment, and the rest.

    Raises:
        InstallError: if ONNX Runtime is not installed.
        ModelError: if nothing of the model can be tuned.
        VerificationError: if the whole is wrong; ``out`` is left as it was.
        AutotuneError: as ``tune``.
    """
    whole, segments = cut_model(model, options.inputs, target)
    if not any(segment.island for segment in segments):
        import_model(model, options.inputs, target)  # says what is wrong: every part of it can be imported alone
    with scratch_beside(out) as folder:
        paths = [folder / segment_name(number, segment.island) for number, segment in enumerate(segments)]
        files = [_saved(segment, path) for segment, path in zip(segments, paths, strict=True)]
        before = _parts_by_model(out)
        shares = _shares(files, segments, target)
        results: list[T] = []
        links = []
        for path, file, segment, share in zip(paths, files, segments, shares, strict=True):
            if not segment.island:
                if (earlier := before.get(sha256(file))) is not None:
                    shutil.copytree(earlier, path)
                results.append(tune(file, part_options(options, share, path, {}), any(r.interrupted for r in results)))
            links.append(_link(path, segment))
        beside = folder / "chain"
        write_chain(beside, whole, links, {"model": model.name, "sha256": sha256(model)})
        verdict = _verified(beside, whole, options.seed)
        latency_ms = None if any(r.interrupted for r in results) else _median_ms(beside, options.seed)
        install(beside, out)
    return results, Islanded(tuple(s.operators for s in segments if s.island), verdict, latency_ms)


def _parts_by_model(out: Path) -> dict[str, Path]:
    """Hash of a segment's ONNX file → its artifact, of what is at ``out``: a second run goes on from there."""
    if not is_chain(out):
        return {}
    try:
        return {str(read_manifest(link.path)["provenance"]["sha256"]): link.path for link in read_chain(out).tuned}
    except (ArtifactError, KeyError) as error:
        logger.debug("%s is made anew: %s", out, error)
        return {}


def _saved(segment: Segment, path: Path) -> Path:
    """The ONNX file of the segment that is to be at ``path``."""
    file = path if segment.island else model_of(path)
    onnx.save(segment.model, file)
    if segment.island:
        onnxruntime_over(file.read_bytes(), 1)  # refuses now what it would refuse later
    return file


def _shares(files: Sequence[Path], segments: Sequence[Segment], target: Target) -> list[float]:
    """Of the budget, by arithmetic; islands get none."""
    work = [
        0.0 if segment.island else sum(task.flop * task.weight for task in import_model(file, {}, target)[1].tasks)
        for file, segment in zip(files, segments, strict=True)
    ]
    most = sum(work) or 1.0
    raised = [
        0.0 if segment.island else max(LEAST_SHARE, flop / most) for flop, segment in zip(work, segments, strict=True)
    ]
    return [share / sum(raised) for share in raised]


def _link(path: Path, segment: Segment) -> Link:
    graph = segment.model.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = tuple(value.name for value in graph.input if value.name not in weights)
    outputs = tuple(value.name for value in graph.output)
    return Link(path, segment.island, inputs, outputs, segment.operators if segment.island else ())


def _verified(chain: Path, model: onnx.ModelProto, seed: int) -> Verdict:
    verdict = compare_session(ChainSession(chain), model, seed)
    if not verdict.passed:
        raise VerificationError(complaint(chain, verdict, seed))
    return verdict


def _median_ms(chain: Path, seed: int) -> float:
    """Latency of the whole model."""
    session = ChainSession(chain)
    feed, took = session_inputs(session, seed), []
    session.run(None, feed)  # the first one is slower
    for _ in range(RUNS):
        began = time.perf_counter()
        session.run(None, feed)
        took.append(time.perf_counter() - began)
    return 1e3 * statistics.median(took)
