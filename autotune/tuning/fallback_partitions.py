"""A model with operators that cannot be imported or give wrong numbers: the rest is tuned, ONNX Runtime runs those.

Every tuned segment is an artifact of its own, with its share of the budget by arithmetic and the run's log. The whole
is compared with ONNX Runtime running the whole model.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from autotune.artifact.composite import (
    extract_part,
    model_of,
    part_name,
    read_composite,
    write_composite,
)
from autotune.artifact.fallback_file import interface_of
from autotune.artifact.manifest import KERNELS, ONNX, SEGMENTS, THREADS, kind_of, read_manifest, sha256
from autotune.builder.build_request import ImportedModel
from autotune.builder.lane_budget import operations
from autotune.importer.guarded_import import cut_model, flat_model
from autotune.importer.onnx_model.segments import Segment, split
from autotune.measure.measurer import MeasurementBackend
from autotune.runtime.model_timing import median_s, session_run
from autotune.runtime.segmented_executor import open_onnxruntime
from autotune.runtime.session import InferenceSession
from autotune.tuning.composition import Composed
from autotune.tuning.result import Result
from autotune.tuning.run_plan import PartJob, part_options
from autotune.validation.arithmetic.wrong_nodes import NumbersCheck
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import compare_outputs, complaint, session_inputs
from schedules.vocabulary.errors import ArtifactError, VerificationError

logger = logging.getLogger(__name__)

MIN_SHARE = 0.02
"""Least share of the budget for a segment with hardly any arithmetic. Heuristic."""


class FallbackPartitions:
    """The composition of a model that cannot be tuned as a whole: a part per tuned segment.

    An artifact of segments that is in place already gives those whose models are the same, with their history and
    latency.

    Args:
        cut: the checked model and its segments, where they are known.
    """

    def __init__(self, job: PartJob, cut: tuple[onnx.ModelProto, list[Segment]] | None = None) -> None:
        assert job.target is not None
        self._path, self._options, self._out, self._target = job.model, job.options, job.out, job.target
        self._model, self._segments = cut or cut_model(job.model, job.options.inputs, job.target)

    @property
    def tunes(self) -> bool:
        """Whether anything is left to tune."""
        return not all(segment.is_fallback for segment in self._segments)

    @property
    def operators(self) -> list[str]:
        """Operators that ONNX Runtime runs, each once."""
        fallbacks = (segment for segment in self._segments if segment.is_fallback)
        return list(dict.fromkeys(kind for segment in fallbacks for kind in segment.operators))

    def parts(self, folder: Path) -> list[PartJob]:
        """Implement ``Composition.parts``.

        Raises:
            InstallError: if ONNX Runtime is not installed.
            ModelError: if a tuned segment cannot be imported after all.
        """
        places = self._places(folder)
        files = [self._save(segment, place) for segment, place in zip(self._segments, places, strict=True)]
        before = self._parts_by_model()
        tuned = [(file, place) for file, place in zip(files, places, strict=True) if file != place]
        options = replace(self._options, inputs={})
        models = [ImportedModel(file, options) for file, _ in tuned]
        jobs = []
        for (file, place), imported, share in zip(tuned, models, self._shares(models), strict=True):
            if (earlier := before.get(sha256(file))) is not None:
                extract_part(earlier, place)
            own = part_options(self._options, share, place, {})
            jobs.append(PartJob(file, own, self._target, imported=imported, compared=False))
        return jobs

    def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
        """Implement ``Composition.compose``."""
        places = self._places(folder)
        path, seed = folder / "segments", self._options.seed
        provenance: dict[str, str | int] = {
            "model": self._path.name,
            "sha256": sha256(self._path),
            "precision": self._options.precision,
        }
        if not self.tunes:
            provenance[THREADS] = self._target.threads
        write_composite(path, SEGMENTS, places, interface_of(self._model), provenance)
        session = InferenceSession(path)
        reference = Reference(self._model)
        feed = reference.fitting(session_inputs(session, seed))
        verdict = compare_outputs(session, reference, feed)
        if not verdict.passed:
            raise VerificationError(complaint(path, verdict, seed))
        interrupted = any(result is not None and result.interrupted for result in results)
        tuned_ms = None if interrupted else 1e3 * median_s(session_run(session, feed))
        fields = {
            "target": self._target.fingerprint,
            "threads": self._target.threads,
            "latency_ms": {"tuned": tuned_ms},
            "verified": verdict,
            "fallback_partitions": tuple(segment.operators for segment in self._segments if segment.is_fallback),
        }
        return Composed(path, fields)

    def _places(self, folder: Path) -> list[Path]:
        """Return where the segments lie: artifacts of kernels, and ONNX files of fallback partitions."""
        return [folder / part_name(number, _kind(segment)) for number, segment in enumerate(self._segments)]

    def _save(self, segment: Segment, place: Path) -> Path:
        """The ONNX file of the segment that is to be at ``place``."""
        file = place if segment.is_fallback else model_of(place)
        onnx.save(segment.model, file)
        if segment.is_fallback:
            open_onnxruntime(file, 1)  # refuses now what it would refuse after the tuning
        return file

    def _parts_by_model(self) -> dict[str, Path]:
        """Hash of a segment's ONNX file → its artifact, of what is in place."""
        if kind_of(self._out) != SEGMENTS:
            return {}
        try:
            tuned = read_composite(self._out).tuned
            return {str(read_manifest(part.path)["provenance"]["sha256"]): part.path for part in tuned}
        except (ArtifactError, KeyError) as error:
            logger.debug("%s is built anew: %s", self._out, error)
            return {}

    def _shares(self, models: Sequence[ImportedModel]) -> list[float]:
        """Shares of the budget by arithmetic; a single tuned segment gets all, and is not imported for that."""
        if len(models) == 1:
            return [1.0]
        work = [operations(model.for_target(self._target)[1]) for model in models]
        raised = [max(MIN_SHARE, flop / (sum(work) or 1)) for flop in work]
        return [share / sum(raised) for share in raised]


def without_wrong_nodes(job: PartJob, measurer: MeasurementBackend) -> FallbackPartitions:
    """The partitions of a model whose untuned build is wrong: nodes that give wrong numbers are left to ONNX Runtime.

    Raises:
        AutotuneError: if the model cannot be cut, or the reference does not run it.
    """
    assert job.target is not None
    model, flat = flat_model(job.model, job.options.inputs)
    with NumbersCheck(flat, job.model, job.target, measurer, job.options.precision, job.options.seed) as check:
        segments = split(flat, check)
    return FallbackPartitions(job, (model, segments))


def _kind(segment: Segment) -> str:
    return ONNX if segment.is_fallback else KERNELS
