"""``tune`` and ``build``: from an ONNX file to a verified artifact, for any target and in any number of parts.

A run that would repeat one of this machine ends with what that one brought. So nothing is imported here that takes a
while and only a run needs: TVM, ONNX and what is built on them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.artifact.known_runs import (
    LogView,
    RunNote,
    artifact_state,
    is_unchanged,
    log_bytes,
    read_note,
    run_key,
    write_note,
)
from autotune.artifact.plain_data import decode, encode
from autotune.artifact.replacement import remove_abandoned
from autotune.contributions import contribution, framework_of
from autotune.events import Observer, ignore
from autotune.graph.lanes import devices_of
from autotune.options import INSTANT, Options, default_log
from autotune.tuning.result import PHASES, Result
from autotune.tuning.run_plan import RunPlan, plan_run
from schedules.vocabulary.errors import ArtifactError, LogError, UsageError

REPEATED = "nothing has changed since"
"""Message of a run that was not carried out again."""


def tune(
    model: str | Path | Sequence[str | Path] | Any,
    options: Options | None = None,
    observe: Observer = ignore,
    *,
    example_inputs: Any = None,
) -> Result:
    """Tune ``model``, build and verify the artifact.

    If nothing changed (models, options, machine, this program, the log's records, artifacts), ``tune`` only checks the
    artifact and returns the earlier result.

    Args:
        model: an ONNX file; or several, which share one budget so that the sum of their latencies, weighted by
            ``options.weights``, falls fastest. Each gets an artifact of its own, and ``parts`` of the result has an
            entry for each. Or a ``torch.nn.Module`` (docs/pytorch.md).
        example_inputs: of a module: a tuple of the positional arguments of ``forward``, a mapping of its keyword
            arguments, or the only argument.

    Raises:
        AutotuneError: with one line for people: a bad model, option, log or artifact folder, a miss in a frozen run,
            or outputs that differ from the reference.
    """
    began = time.perf_counter()
    paths = _files(model, example_inputs, options or Options())
    plan = plan_run(paths, options or Options())
    options = plan.options
    if options.frozen:
        from autotune.tuning.existing_log import check_frozen  # loads SQLAlchemy

        check_frozen(options.log)
    address = str(default_log() if options.log is None else options.log)
    address = address if "://" in address else os.path.realpath(address)
    key = _key(plan, address)
    known = None if key is None else _repeated(key, address, options)
    if known is not None:
        return replace(known, elapsed_s=time.perf_counter() - began)
    from autotune.tuning.split import data_files, tune_models  # loads TVM, ONNX and all else

    result = tune_models(plan, observe)
    if key is not None and not result.interrupted and result.verified is not None:
        _note(key, result, data_files(paths), address)
    return result


def is_repeated(result: Result) -> bool:
    """Return whether ``result`` is that of an earlier run, because nothing has changed since."""
    return result.reason.endswith(REPEATED)


def build(
    model: str | Path | Sequence[str | Path] | Any,
    options: Options | None = None,
    observe: Observer = ignore,
    *,
    example_inputs: Any = None,
) -> Result:
    """Build and verify the artifact of ``model``, or of each of several, from the log alone; nothing is measured.

    Args:
        model, example_inputs: as ``tune``.

    Raises:
        MissingRecordError: if the log lacks a task, naming each and why.
        AutotuneError: as ``tune``.
    """
    return tune(model, replace(options or Options(), frozen=True), observe, example_inputs=example_inputs)


def _files(model: Any, example_inputs: Any, options: Options) -> list[Path]:
    """The ONNX files of ``model``.

    Raises:
        UsageError: if it is neither a file nor files, nor a model of a known framework.
        AutotuneError: if a framework's model cannot be exported.
    """
    name = framework_of(model)
    if name is not None:
        return [contribution(name, f"a model of {name}")(model, example_inputs, options)]
    if example_inputs is not None:
        raise UsageError("example_inputs are for a torch.nn.Module; leave them out for an ONNX file")
    paths = [model] if isinstance(model, str | os.PathLike) else list(model) if isinstance(model, Sequence) else [model]
    strange = [path for path in paths if not isinstance(path, str | os.PathLike)]
    if strange:
        raise UsageError(
            f"{type(strange[0]).__name__} is no model; give the path of an ONNX file, or a torch.nn.Module"
        )
    return [Path(path) for path in paths]


def _key(plan: RunPlan, address: str) -> str | None:
    """The key of the run with the log at ``address``; None for a run that is never taken for done.

    Other machines and devices, and files of inputs, may change where nothing here tells.
    """
    options = plan.options
    has_device = options.target is not None and (options.target.arch or devices_of(options.lanes))
    if plan.target is None or has_device or not options.device or options.calibration is not None:
        return None
    return run_key([job.model for job in plan.jobs], options, plan.target, address)


def _repeated(key: str, address: str, options: Options) -> Result | None:
    """Return the result of the run under ``key``, if the same would come out again.

    Guesses depend on records of any kernel, so after a run of guesses the whole log has to be as it was.
    """
    note = read_note(key)
    if note is None or not is_unchanged(note):
        return None
    same = bool(note.log) and note.log == log_bytes(address)
    if not same and (options.effort == INSTANT or not _has_views(note.views, address)):
        return None
    result = _as_repeated(decode(Result, note.result))
    with contextlib.suppress(OSError):  # nothing has to be written here
        for part in result.parts or (result,):
            remove_abandoned(part.artifact)
    return result


def _has_views(views: Iterable[LogView], address: str) -> bool:
    """Return whether the log has the records of ``views``, and no others of the same kernels."""
    from autotune.tuning.existing_log import existing_log  # loads SQLAlchemy

    try:
        log = existing_log(address)
    except LogError:  # a run says what is wrong with it
        return False
    try:
        return all(log.state(view.tasks, view.targets) == view.state for view in views)
    finally:
        log.close()


def _as_repeated(result: Result) -> Result:
    """``result`` as of a run that measured nothing and took no time."""
    return replace(
        result,
        measured_trials=0,
        failed_trials=0,
        reused_records=result.reused_records + result.measured_trials,
        phase_s=dict.fromkeys(PHASES, 0.0),
        reason=f"{result.reason}; {REPEATED}" if result.reason else REPEATED,
        parts=tuple(_as_repeated(part) for part in result.parts),
    )


def _note(key: str, result: Result, files: Sequence[tuple[str, str]], address: str) -> None:
    """Keep what a run ended with, where the log still is as the run read it."""
    results = result.parts if result.weights else (result,)
    content = log_bytes(address)
    try:
        artifacts = tuple((str(outcome.artifact.absolute()), artifact_state(outcome.artifact)) for outcome in results)
    except ArtifactError:  # somebody is changing it at this moment
        return
    if _has_views(result.views, address):
        parts = tuple(replace(part, states=(), views=()) for part in result.parts)
        kept = replace(result, states=(), views=(), parts=parts)
        write_note(key, RunNote(encode(kept), artifacts, tuple(files), result.views, content))
