"""``tune`` and ``build``: from an ONNX file to a verified artifact, for any target and in any number of parts."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune.artifact.known_models import remember_model
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cuda.device import device_target
from autotune.events import Observer, ignore
from autotune.graph.lanes import device_of
from autotune.options import BALANCED, Options
from autotune.tuning.composition import Composition, PartJob, tune_composition
from autotune.tuning.coupled import CoupledLanes
from autotune.tuning.existing_log import check_frozen
from autotune.tuning.fallback_partitions import FallbackPartitions
from autotune.tuning.multi_shape import ShapeSets
from autotune.tuning.objective import record_streams, stream_options
from autotune.tuning.part import output_path, resolve_target, tune_part
from autotune.tuning.portfolio import tune_portfolio
from autotune.tuning.result import Result
from schedules.errors import ModelError, UsageError

logger = logging.getLogger(__name__)


def tune(
    model: str | Path | Sequence[str | Path], options: Options | None = None, observe: Observer = ignore
) -> Result:
    """Tune ``model``, build and verify the artifact.

    Args:
        model: an ONNX file; or several, which share one budget so that the sum of their latencies, weighted by
            ``options.weights``, falls fastest. Each gets an artifact of its own, and ``parts`` of the result has an
            entry for each.

    Raises:
        AutotuneError: with one line for people: a bad model, option, log or artifact folder, a miss in a frozen run,
            or outputs that differ from the reference.
    """
    paths = [Path(model)] if isinstance(model, str | Path) else [Path(each) for each in model]
    options = stream_options(_for_device(options or Options()))
    if options.frozen:
        check_frozen(options.log)
    if len(paths) > 1:
        result = tune_portfolio(paths, options, observe)
    elif paths and not options.weights:
        result = _tuned(paths[0], options, observe)
    else:
        raise UsageError(f"{len(paths)} models and {len(options.weights)} weights: weights go with two models or more")
    for path, made in zip(paths, result.parts if result.weights else [result], strict=True):
        record_streams(made.artifact, options)
        remember_model(made.artifact, path)
    return result


def _tuned(path: Path, options: Options, observe: Observer) -> Result:
    composition = _composition(path, options)
    if composition is not None:
        return _tune_parts(path, options, composition, observe)
    try:
        return tune_part(path, options, observe)
    except ModelError as error:
        if not options.fallback:
            raise
        logger.info("%s is cut into what can be tuned and what ONNX Runtime runs: %s", path.name, error)
    return _tune_parts(path, options, FallbackPartitions(path, options), observe)


def build(
    model: str | Path | Sequence[str | Path], options: Options | None = None, observe: Observer = ignore
) -> Result:
    """Build and verify the artifact of ``model``, or of each of several, from the log alone; nothing is measured.

    Raises:
        MissingRecordError: if the log lacks a task, naming each and why.
        AutotuneError: as ``tune``.
    """
    return tune(model, replace(options or Options(), frozen=True), observe)


def _for_device(options: Options) -> Options:
    """``--lanes cuda:0`` alone is the device as target; beside the CPU it is the target of the device's lane.

    Raises:
        UsageError: if the lanes name a device and the target is none.
    """
    device = device_of(options.lanes)
    if not device:
        return options
    target = options.target if options.target is not None else device_target()
    if backend_of(target).has_lanes:
        raise UsageError(f"--lanes {options.lanes} needs a CUDA target for {device}; leave --target out, or give one")
    lanes = options.lanes if "," in options.lanes else Options.lanes
    return replace(options, target=target, lanes=lanes)


def _composition(path: Path, options: Options) -> Composition | None:
    """How the model is split before anything is tuned; None where it is tuned as a whole.

    Raises:
        UsageError: if the options do not go together.
    """
    if device_of(options.lanes):
        return CoupledLanes(path, options)
    if not options.remote:
        backend_of(resolve_target(options)).check_options(options)
    return ShapeSets(path, options) if options.shapes or options.objective == BALANCED else None


def _tune_parts(path: Path, options: Options, composition: Composition, observe: Observer) -> Result:
    began = time.perf_counter()
    result = tune_composition(composition, output_path(path, options), _tune_part, observe)
    return replace(result, model=path.name, elapsed_s=time.perf_counter() - began)


def _tune_part(job: PartJob, observe: Observer, interrupted: bool) -> Result | None:
    try:
        return tune_part(job.model, job.options, observe, interrupted)
    except ModelError as error:
        if not job.optional:
            raise
        logger.warning("%s stays on the CPU: %s", job.model.stem, error)
        return None
