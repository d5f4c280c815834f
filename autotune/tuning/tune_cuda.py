"""``tune run`` for a CUDA target: search on the device if there is one, then decide, compile, inspect and write."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import onnx
import tvm

from autotune.artifact.directory import install, scratch_beside, writing
from autotune.backends.cpu.linking import check_compiler
from autotune.backends.cuda.cuda_builder import Chosen
from autotune.backends.cuda.nvrtc import check_nvrtc
from autotune.build.device_build import NOT_RUN, build_offline
from autotune.events import Observer, ignore
from autotune.host.machine import read_host
from autotune.importer.program import Program
from autotune.measure.local_measurer import LocalMeasurer, Site
from autotune.options import Options, default_log
from autotune.runtime.plain_session import InferenceSession
from autotune.tuning.existing_log import check_frozen
from autotune.tuning.pipeline import MOST_COLD_BYTES, Result, _Clock, _search, load_program, output_path
from autotune.tuning.run_history import Recorder
from autotune.validation.verify import Verdict, compare, complaint, random_inputs, reference_outputs
from schedules.errors import ModelError, UsageError, VerificationError
from schedules.lower import is_scheduled
from schedules.lower import load_program as load_program_text
from schedules.target import Target
from tuning_logs.log import TuningLog
from tuning_logs.sql_store import open_log

logger = logging.getLogger(__name__)

COMPILE_TIMEOUT_S = 20.0
ADDRESS_BYTES = 1 << 50  # a CUDA context reserves terabytes of addresses; its memory is the device's


def tune_cuda(model_path: Path, options: Options, target: Target, observe: Observer = ignore) -> Result:
    """Tune for ``target``; without a device only decide, compile and inspect.

    Raises:
        UsageError: if a device is asked for and there is none.
        VerificationError: if outputs differ from the reference; what was at the artifact's place is left as it was.
        AutotuneError: as ``pipeline.tune``.
    """
    began = time.perf_counter()
    if options.frozen:
        check_frozen(options.log)
    _check(options)
    check_compiler()
    check_nvrtc()
    clock = _Clock(observe)
    with ExitStack() as stack:
        with clock.phase("import"):
            model, program = load_program(model_path, options, target)
            _check_kernels(model_path, program)
            log = open_log(options.log if options.log is not None else default_log())
            stack.callback(log.close)
        result = Result(
            model_path.name, output_path(model_path, options), target.fingerprint, target.threads, len(program.tasks)
        )
        with scratch_beside(result.artifact):  # before anything is tuned for a place that cannot be written
            pass
        if options.device and not options.frozen:
            _tuned(result, program, target, log, options, clock, observe)
        with scratch_beside(result.artifact) as folder:
            made = folder / result.artifact.name
            with clock.phase("build"):
                chosen = build_offline(made, program, target, log, model_path, options)
            _warn_of_local_memory(chosen)
            if options.device:
                with clock.phase("verify"):
                    result.verified = _verified(made, result.artifact, model, program, options.seed)
            else:
                result.reason = NOT_RUN
            with writing(result.artifact):
                install(made, result.artifact)
    result.phase_s = clock.phase_s
    result.elapsed_s = time.perf_counter() - began
    return result


def _warn_of_local_memory(chosen: Mapping[str, Chosen]) -> None:
    for symbol, item in chosen.items():
        if item.local_bytes:
            logger.warning("%s uses %d bytes of local memory in every config tried", symbol, item.local_bytes)


def _verified(made: Path, out: Path, model: onnx.ModelProto, program: Program, seed: int) -> Verdict:
    """The outputs of the artifact at ``made``, which is meant for ``out``, against the reference's.

    Raises:
        VerificationError: if they differ.
    """
    feed = random_inputs(program.inputs, seed)
    reference, expected = reference_outputs(model, feed)
    verdict = compare(reference, InferenceSession(made).run(None, feed), expected)
    if not verdict.passed:
        raise VerificationError(complaint(out, verdict, seed))
    return verdict


def _check(options: Options) -> None:
    if options.remote:
        raise UsageError("--cluster and --rpc measure CPUs; for a GPU elsewhere use 'tune pack'")
    if options.lanes != Options.lanes:
        raise UsageError(f"--lanes {options.lanes!r}: a CUDA artifact runs on its device alone; leave --lanes out")
    if options.device and not tvm.cuda(0).exist:
        raise UsageError(
            "this machine has no CUDA device to tune on; give --no-device to build without measuring, "
            "or make a job for another machine with 'tune pack'"
        )


def _check_kernels(model_path: Path, program: Program) -> None:
    scheduled = [task.name for task in program.tasks if is_scheduled(load_program_text(program.programs[task.key]))]
    if scheduled:
        raise ModelError(
            f"{model_path.name} has recurrences that are one kernel for all steps ({scheduled[0]}), which is for CPUs "
            "only; tune it with --target host, or with --lanes cpu,cuda:0, which leaves them to the CPU"
        )


def _tuned(
    result: Result,
    program: Program,
    target: Target,
    log: TuningLog,
    options: Options,
    clock: _Clock,
    observe: Observer,
) -> None:
    """Search on the device; fills ``result`` and the log."""
    site = Site("cuda:0", (0,), ADDRESS_BYTES, 0.0, read_host().usable_threads)
    with LocalMeasurer(
        target, evaluator=options.evaluator, seed=options.seed, compile_timeout_s=COMPILE_TIMEOUT_S, site=site
    ) as measurer:
        measurer.cold_bytes = min(MOST_COLD_BYTES, sum(array.nbytes for array in program.weights))
        _search(result, program, target, log, measurer, options, clock, observe, Recorder().run)
