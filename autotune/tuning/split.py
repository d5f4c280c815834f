"""Models are tuned in as many parts as their options ask for, or several together."""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from autotune.artifact.directory import read_artifact
from autotune.artifact.known_models import remember_model
from autotune.artifact.manifest import AUTO as AUTO_STREAMS
from autotune.artifact.manifest import (
    INTERFACE,
    KERNELS,
    STREAMS,
    annotate,
    kind_of,
    read_manifest,
    replace_field,
    sha256,
)
from autotune.backends.backend_catalog import backend_of
from autotune.builder.open_batch import any_batch
from autotune.events import Observer
from autotune.graph.lanes import devices_of
from autotune.host.machine import is_foreign
from autotune.importer.assumed_sets import assumed_sets
from autotune.importer.generation.guess import generation_shapes
from autotune.importer.guarded_import import import_memory
from autotune.importer.import_worker import external_files
from autotune.options import AUTO, BALANCED, LATENCY, Options
from autotune.runtime.inputs import shape_text
from autotune.runtime.segmented_executor import open_onnxruntime
from autotune.tuning.composition import Composition, tune_composition
from autotune.tuning.coupled import CoupledLanes
from autotune.tuning.fallback_partitions import FallbackPartitions, without_wrong_nodes
from autotune.tuning.multi_shape import ShapeSets
from autotune.tuning.part import Measurers, tune_part
from autotune.tuning.portfolio import tune_portfolio
from autotune.tuning.precisions.auto_precision import AutoPrecision
from autotune.tuning.result import Result
from autotune.tuning.run_plan import PartJob, RunPlan
from autotune.validation.fitting_sizes import fitting_inputs
from schedules.vocabulary.errors import (
    AutotuneError,
    CompileError,
    ModelError,
    OneSetError,
    UnsupportedError,
    UsageError,
    VerificationError,
)

logger = logging.getLogger(__name__)


def tune_models(plan: RunPlan, observe: Observer) -> Result:
    """Tune, build and verify; as ``autotune.tune``, whatever earlier runs ended with.

    Raises:
        AutotuneError: as ``autotune.tune``.
    """
    target = plan.options.target or plan.target
    if target is not None and not plan.options.remote:
        backend_of(target).check_options(plan.options)
    with import_memory(plan.options.import_memory), Measurers() as measurers:
        tune = partial(_tuned, measurers)
        result = tune_portfolio(plan, tune, observe, measurers) if plan.jobs[1:] else tune(plan.jobs[0], observe, False)
    parts = result.parts if result.weights else (result,)
    opened = []
    for job, part in zip(plan.jobs, parts, strict=True):
        _record_streams(part.artifact, plan.options)
        opened.append(replace(part, any_batch=_open_batch(part.artifact, job)))
        remember_model(part.artifact, job.model)
    return replace(result, parts=tuple(opened)) if result.weights else opened[0]


def _record_streams(artifact: Path, options: Options) -> None:
    """Write into the artifact how many streams a session opens.

    Raises:
        ArtifactError: if it cannot be written.
    """
    streams = 1 if options.objective == LATENCY else options.streams or AUTO_STREAMS
    if read_manifest(artifact)["provenance"].get(STREAMS, 1) != streams:
        annotate(artifact, {STREAMS: streams})


def _open_batch(path: Path, job: PartJob) -> bool:
    """Return whether the artifact answers any batch, which an artifact of kernels has written into its manifest.

    Raises:
        ArtifactError: if it cannot be written.
    """
    if kind_of(path) != KERNELS:
        return False
    artifact = read_artifact(path)
    runs_here = job.options.device and backend_of(artifact.target).has_lanes and not artifact.device_parts
    if artifact.interface is not None or not runs_here or job.options.remote:
        return artifact.interface is not None
    interface = None if is_foreign(artifact.target.architecture) else any_batch(artifact, job.model, job.options.seed)
    if interface is not None:
        replace_field(path, INTERFACE, interface.to_data())
    return interface is not None


def data_files(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """Absolute paths and hashes of the files beside ``paths`` that the models keep their tensors in."""
    return [(str(file.absolute()), sha256(file)) for path in paths for file in external_files(path)]


def _tuned(measurers: Measurers, job: PartJob, observe: Observer, interrupted: bool) -> Result:
    """Tune a model; operators that cannot be tuned are left to ONNX Runtime, where the options allow it."""
    try:
        return _as_asked(measurers, job, observe, interrupted)
    except (CompileError, ModelError, VerificationError) as error:
        if (rows := _rows_alone(job, error)) is not None:
            with suppress(CompileError, ModelError, VerificationError):  # else what follows is told of the first error
                return _as_asked(measurers, rows, observe, interrupted)
        if (one := _one_set(job, isinstance(error, OneSetError))) is not None:
            shapes = ", ".join(f"{name}:{shape_text(shape)}" for name, shape in one.options.inputs.items())
            logger.warning("%s; the model is tuned for %s alone", error, shapes)
            return _tuned(measurers, one, observe, interrupted)
        if isinstance(error, ModelError) and (fitting := _fitting(job)) is not None:
            return _tuned(measurers, fitting, observe, interrupted)
        try:
            repaired, failure = _repaired(job, error, measurers), error
        except ModelError as refusal:
            repaired, failure = None, refusal
        if repaired is None or not repaired.tunes:  # perhaps at the assumed sizes alone, though they are right
            if (other := _fitting(job, others=True)) is not None:
                return _tuned(measurers, other, observe, interrupted)
            if repaired is None:
                raise failure from None
        left = ", ".join(repaired.operators) if repaired.tunes else "the entire model, of which nothing can be tuned"
        logger.warning("%s; ONNX Runtime runs %s", error, left)
    return _in_parts(measurers, job, repaired, observe, interrupted)


def _rows_alone(job: PartJob, error: AutotuneError) -> PartJob | None:
    """The job with sets of one row, if sets of several were assumed for short sequences and failed; else None."""
    options = job.options
    if options.inputs or options.shapes or options.generate:
        return None
    if isinstance(error, (CompileError, OneSetError, UnsupportedError)):  # whatever the batch
        return None
    assumed, (sets, _) = _with_sets(job.model, options, told=False).shapes, assumed_sets(job.model, in_batches=False)
    if not assumed or not sets or tuple(assumed) == sets:
        return None
    logger.warning("%s; sets of one row are tried", error)
    return replace(job, options=replace(options, shapes=sets), imported=None)


def _one_set(job: PartJob, lengths: bool) -> PartJob | None:
    """The job for one of several sets of shapes, if these were assumed; else None.

    It is the first set of several batches, and the last of several ``lengths``, if they are to be looked at.
    """
    options = job.options
    if options.inputs or options.shapes or options.generate:
        return None
    sets = _with_sets(job.model, options, told=False).shapes
    if len(sets) < 2:
        return None
    differ = any(shapes[name][1:] != shape[1:] for shapes in sets for name, shape in sets[0].items())
    if differ and not lengths:
        return None
    return replace(job, options=replace(options, inputs=dict(sets[-1 if differ else 0])), imported=None)


def _fitting(job: PartJob, others: bool = False) -> PartJob | None:
    """The job with sizes that ONNX Runtime runs, if it refuses the assumed ones; None if the sizes are not at fault.

    Args:
        others: whether it is to have other sizes than the assumed ones, even if these are not at fault.

    Raises:
        ModelError: if it runs no size that is tried.
    """
    options = job.options
    if options.inputs or options.shapes or options.generate or importlib.util.find_spec("onnxruntime") is None:
        return None
    if (fit := fitting_inputs(job.model, others)) is None:
        return None
    shapes, text = fit
    logger.warning("%s", text)
    return replace(job, options=replace(options, inputs=shapes), imported=None)


def _tuned_part(measurers: Measurers, job: PartJob, observe: Observer, interrupted: bool) -> Result | None:
    """Tune a part of a model; None where it is left out."""
    try:
        return _as_asked(measurers, job, observe, interrupted)
    except ModelError as error:
        if not job.optional:
            raise
        logger.warning("%s is not built for %s: %s", job.model.stem, job.target and job.target.fingerprint, error)
        return None


def _as_asked(measurers: Measurers, job: PartJob, observe: Observer, interrupted: bool) -> Result:
    """Tune a job as a whole, or in the parts that its options ask for."""
    composition = _composition(job, measurers)
    if composition is not None:
        return _in_parts(measurers, job, composition, observe, interrupted)
    return tune_part(job, observe, interrupted, measurers)


def _in_parts(
    measurers: Measurers, job: PartJob, composition: Composition, observe: Observer, interrupted: bool
) -> Result:
    began = time.perf_counter()
    result = tune_composition(composition, job.out, partial(_tuned_part, measurers), observe, interrupted)
    return replace(result, model=job.model.name, elapsed_s=time.perf_counter() - began)


def _composition(job: PartJob, measurers: Measurers) -> Composition | None:
    """Return the parts that a model is split into before tuning; None if it is tuned as a whole."""
    options = job.options
    if not options.inputs and not options.shapes:
        options = _with_sets(job.model, options)
    if options.shapes or options.objective == BALANCED:
        return ShapeSets(replace(job, options=options))
    if options.precision == AUTO:
        return AutoPrecision(job)
    return CoupledLanes(job, measurers) if devices_of(options.lanes) else None


def _with_sets(model: Path, options: Options, told: bool = True) -> Options:
    """``options`` with the sets of shapes of a decoder, or of a model with open sizes, where options allow them.

    Args:
        told: whether to say which sets are assumed.
    """
    if options.generate:
        return replace(options, shapes=generation_shapes(model, options.generate))
    if options.target is not None and options.target.arch:
        return options
    sets, text = assumed_sets(model)
    try:
        several = replace(options, shapes=sets)
    except UsageError:  # its import then assumes one set
        return options
    if not sets:
        return options
    if told:
        logger.warning("%s", text)
    return several


def _repaired(job: PartJob, error: AutotuneError, measurers: Measurers) -> FallbackPartitions:
    """The partitions of a model that failed as a whole; the nodes that fail are left to ONNX Runtime.

    Raises:
        AutotuneError: ``error``, or what stands in the way of the partitions.
    """
    options = job.options
    if options.shapes or not options.leaves_out or importlib.util.find_spec("onnxruntime") is None:
        if isinstance(error, UnsupportedError) and options.generate is None:
            raise UnsupportedError(f"{error}; {_advice(options)}") from error
        raise error
    try:
        if isinstance(error, ModelError):
            partitions = FallbackPartitions(job)
        else:
            assert job.target is not None
            partitions = without_wrong_nodes(job, measurers.of(job.target, options))
    except AutotuneError as other:
        if str(other) == str(error):
            raise error from None
        raise type(error)(f"{error}; nor can the rest be tuned: {other}") from other
    if not partitions.tunes:
        try:
            open_onnxruntime(job.model, 1, from_bytes=False)  # refuses now what it would refuse later
        except AutotuneError as refusal:
            logger.debug("%s", refusal)
            raise type(error)(f"{error}; ONNX Runtime refuses the model too, so check its export") from refusal
    if not partitions.operators:
        raise error
    return partitions


def _advice(options: Options) -> str:
    """Return advice that lets ONNX Runtime run operators that cannot be imported."""
    if options.leaves_out and not options.shapes:
        return "ONNX Runtime runs such operators where the package onnxruntime is installed"
    if options.fallback is not None and not options.shapes:
        return "ONNX Runtime runs such operators without --fallback none"
    return "ONNX Runtime can run such operators for one set of shapes on this machine's CPU"
