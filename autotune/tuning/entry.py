"""``tune`` and ``build`` for any target: the CPU's pipeline, the GPU's, or both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotune.backends.cuda.device import device_target
from autotune.events import Observer, ignore
from autotune.graph.lanes import device_of
from autotune.options import Options
from autotune.tuning import pipeline
from autotune.tuning.coupled import tune_coupled
from autotune.tuning.pipeline import Result
from autotune.tuning.tune_cuda import tune_cuda
from schedules.errors import UsageError


def tune(model: str | Path, options: Options | None = None, observe: Observer = ignore) -> Result:
    """Tune ``model``, build and verify the artifact.

    Raises:
        AutotuneError: with one line for people: a bad model, option, log or artifact folder, a miss in a frozen run,
            or outputs that differ from the reference.
    """
    options = options or Options()
    if device := device_of(options.lanes):
        target = options.target if options.target is not None else device_target()
        if target.kind != "cuda":
            raise UsageError(
                f"--lanes {options.lanes} needs a CUDA target for {device}; leave --target out, or give one"
            )
        if "," in options.lanes:
            return tune_coupled(Path(model), options, target, observe)
        options = replace(options, target=target, lanes=Options.lanes)
    if options.target is not None and options.target.kind == "cuda":
        if options.shapes:
            count = len(options.shapes)
            raise UsageError(f"a CUDA artifact serves one set of shapes, not {count}; give every --input once")
        return tune_cuda(Path(model), options, options.target, observe)
    return pipeline.tune(model, options, observe)


def build(model: str | Path, options: Options | None = None, observe: Observer = ignore) -> Result:
    """Build and verify the artifact of ``model`` from the log alone; nothing is measured.

    Raises:
        MissingRecordError: if the log lacks a task, naming each and why.
        AutotuneError: as ``tune``.
    """
    return tune(model, replace(options or Options(), frozen=True), observe)
