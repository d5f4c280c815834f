"""How models are tuned: each in as many parts as it takes, or several together; all on the machine of the options."""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from autotune.artifact.known_models import remember_model
from autotune.artifact.manifest import sha256
from autotune.backends.backend_catalog import backend_of
from autotune.backends.cuda.device import device_target
from autotune.events import Observer
from autotune.graph.lanes import device_of, is_simulated
from autotune.host.machine import host_target
from autotune.importer.generation.guess import generation_shapes
from autotune.importer.guarded_import import import_memory
from autotune.importer.import_worker import external_files
from autotune.options import AUTO, BALANCED, Options
from autotune.tuning.composition import Composition, PartJob, tune_composition
from autotune.tuning.coupled import CoupledLanes
from autotune.tuning.fallback_partitions import FallbackPartitions, without_wrong_nodes
from autotune.tuning.multi_shape import ShapeSets
from autotune.tuning.objective import record_streams
from autotune.tuning.part import Measurers, output_path, resolve_target, tune_part
from autotune.tuning.portfolio import tune_portfolio
from autotune.tuning.precisions.auto_precision import AutoPrecision
from autotune.tuning.result import Result
from schedules.errors import AutotuneError, CompileError, ModelError, UnsupportedError, UsageError, VerificationError

logger = logging.getLogger(__name__)


def tune_models(paths: Sequence[Path], options: Options, observe: Observer) -> Result:
    """Tune, build and verify; as ``autotune.tune``, whatever earlier runs ended with.

    Raises:
        AutotuneError: as ``autotune.tune``.
    """
    options = _for_device(options)
    with import_memory(options.import_memory):
        result = tune_portfolio(paths, options, observe) if len(paths) > 1 else _tuned(paths[0], options, observe)
    for path, made in zip(paths, result.parts if result.weights else [result], strict=True):
        record_streams(made.artifact, options)
        remember_model(made.artifact, path)
    return result


def data_files(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """Absolute paths and hashes of the files beside ``paths`` that the models keep their tensors in."""
    return [(str(file.absolute()), sha256(file)) for path in paths for file in external_files(path)]


def _tuned(path: Path, options: Options, observe: Observer) -> Result:
    composition = _composition(path, options)
    with Measurers() as measurers:
        if composition is not None:
            return _tune_parts(path, options, composition, observe, measurers)
        try:
            return tune_part(PartJob(path, options), observe, measurers=measurers)
        except (CompileError, ModelError, VerificationError) as error:
            repaired = _repaired(path, options, error, measurers)
            logger.warning("%s; ONNX Runtime runs %s", error, ", ".join(repaired.operators))
            if not isinstance(error, ModelError) and options.searches:  # the budget is spent: what the log has serves
                options = replace(options, trials=0)
        return _tune_parts(path, options, repaired, observe, measurers)


def _repaired(path: Path, options: Options, error: AutotuneError, measurers: Measurers) -> FallbackPartitions:
    """The partitions of a model that failed as a whole; the nodes that fail are left to ONNX Runtime.

    Raises:
        AutotuneError: ``error``, or what stands in the way of the partitions.
    """
    if not options.leaves_out or importlib.util.find_spec("onnxruntime") is None:
        if isinstance(error, UnsupportedError) and options.generate is None:
            raise UnsupportedError(f"{error}; {_advice(options)}") from error
        raise error
    try:
        if isinstance(error, ModelError):
            found = FallbackPartitions(path, options)
        else:
            found = without_wrong_nodes(path, options, measurers.of(resolve_target(options), options))
    except AutotuneError as other:
        if str(other) == str(error):
            raise error from None
        raise type(error)(f"{error}; nor can the rest be tuned: {other}") from other
    if not found.operators:
        raise error
    return found


def _advice(options: Options) -> str:
    """What lets ONNX Runtime run operators that cannot be imported."""
    if options.leaves_out:
        return "ONNX Runtime runs such operators where the package onnxruntime is installed"
    if options.fallback is not None:
        return "ONNX Runtime runs such operators without --fallback none"
    return "ONNX Runtime runs such operators of one set of shapes on this machine's CPU (docs/fallback.md)"


def _for_device(options: Options) -> Options:
    """``--lanes cuda:0`` alone is the device as target; beside the CPU it is the target of the device's lane.

    Raises:
        UsageError: if the lanes name a device and the target is none.
    """
    device = device_of(options.lanes)
    if not device:
        return options
    if is_simulated(device):
        logger.warning("%s is a simulated device, for tests: it computes on the CPU, at made-up speeds", device)
        return replace(options, target=replace(host_target(options.threads, options.isa), threads=1))
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
    if options.precision == AUTO:
        return AutoPrecision(path, options)
    if not options.remote:
        backend_of(resolve_target(options)).check_options(options)
    if options.generate:
        if options.inputs or options.shapes:
            raise UsageError("--generate guesses the shapes; leave out --input, and give --positions or --prompts")
        return ShapeSets(path, replace(options, shapes=generation_shapes(path, options.generate)))
    return ShapeSets(path, options) if options.shapes or options.objective == BALANCED else None


def _tune_parts(
    path: Path, options: Options, composition: Composition, observe: Observer, measurers: Measurers
) -> Result:
    began = time.perf_counter()
    result = tune_composition(composition, output_path(path, options), partial(_tune_part, measurers), observe)
    return replace(result, model=path.name, elapsed_s=time.perf_counter() - began)


def _tune_part(measurers: Measurers, job: PartJob, observe: Observer, interrupted: bool) -> Result | None:
    try:
        return tune_part(job, observe, interrupted, measurers)
    except ModelError as error:
        if not job.optional:
            raise
        logger.warning("%s stays on the CPU: %s", job.model.stem, error)
        return None
