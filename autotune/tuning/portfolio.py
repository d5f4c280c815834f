"""Several models under one budget: their weighted latencies fall together, and each gets an artifact of its own.

A kernel that several models have is tuned once. Its weight is the sum over the models of the model's weight times how
often it runs the kernel, so one allocator deals the slots of all of them.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from autotune.events import Observer
from autotune.options import BALANCED, ONNXRUNTIME, Options
from autotune.tuning.composition import PartJob
from autotune.tuning.part import output_path, tune_together
from autotune.tuning.result import Result, combined
from costmodels.choices import did_you_mean
from schedules.errors import UsageError


def tune_portfolio(models: Sequence[Path], options: Options, observe: Observer) -> Result:
    """Tune ``models`` under one budget.

    Args:
        options: ``out`` is the folder of the artifacts, the current one if None; ``weights`` are by the stems of the
            models' files.

    Raises:
        UsageError: if two models have one name, a weight is of none of them, or an option is for one model only.
        AutotuneError: as ``tune``.
    """
    began = time.perf_counter()
    _check(models, options)
    # The reference engine is not timed: the run has one progress display and several models.
    options = replace(options, peer=False)
    folder = options.out if options.out is not None else Path()
    shapes = _shapes(models, options.inputs)
    parts = [
        PartJob(
            model,
            replace(options, out=folder / output_path(model, replace(options, out=None)), inputs=shapes[model]),
            weight=options.weights.get(model.stem, 1),
        )
        for model in models
    ]
    tuned = tune_together(parts, options, observe)
    results = tuple(replace(result, remaining=None) for result in tuned.results)  # it is of all models together
    whole = combined(results)
    weights = tuple(part.weight for part in parts)
    first = results[0].phase_s
    return replace(
        whole,
        model=", ".join(model.name for model in models),
        artifact=folder,
        weights=weights,
        # What the models share is counted once.
        tasks=tuned.tasks,
        measured_trials=sum(outcome.measured_trials for outcome in tuned.outcomes),
        failed_trials=sum(outcome.failed_trials for outcome in tuned.outcomes),
        reused_records=sum(outcome.reused_records for outcome in tuned.outcomes),
        phase_s={name: whole.phase_s[name] if name in ("build", "verify") else first[name] for name in first},
        elapsed_s=time.perf_counter() - began,
        latency_ms={name: _weighted_ms(name, results, weights) for name in ("untuned", "tuned")},
        remaining=tuned.outcomes[-1].remaining if tuned.outcomes else None,
        states=tuple(state for outcome in tuned.outcomes for state in outcome.after),
    )


def _weighted_ms(name: str, results: Sequence[Result], weights: Sequence[int]) -> float | None:
    """Weighted sum of the models' latencies in milliseconds; None where one was not measured."""
    total = 0.0
    for result, weight in zip(results, weights, strict=True):
        latency_ms = result.latency_ms.get(name)
        if latency_ms is None:
            return None
        total += weight * latency_ms
    return total if math.isfinite(total) else None


def _check(models: Sequence[Path], options: Options) -> None:
    apart = options.shapes or options.fallback == ONNXRUNTIME
    if apart or options.lanes != Options.lanes or options.objective == BALANCED:
        raise UsageError(
            "several models are tuned on the CPU's threads together, with one set of shapes each; leave out --lanes, "
            "--fallback, --objective balanced and all but one --input per name, or run each model alone"
        )
    named = Counter(model.stem for model in models)
    twice = [name for name, count in named.items() if count > 1]
    if twice:
        raise UsageError(
            f"{named[twice[0]]} of the models are called {twice[0]}, and artifacts and weights go by that name; give "
            "each file a name of its own"
        )
    unknown = [name for name in options.weights if name not in named]
    if unknown:
        raise UsageError(
            f"--weight {unknown[0]}={options.weights[unknown[0]]} names no model; {did_you_mean(unknown[0], named)}"
            f"the models are {', '.join(named)}"
        )


def _shapes(models: Sequence[Path], inputs: Mapping[str, tuple[int, ...]]) -> dict[Path, dict[str, tuple[int, ...]]]:
    """The shapes of ``--input`` for each model: those of inputs that it has.

    Raises:
        UsageError: if no model has an input of that name.
    """
    if not inputs:
        return {model: {} for model in models}
    names = {model: _input_names(model) for model in models}
    every = {name for found in names.values() for name in found}
    for name in inputs:
        if name not in every:
            near = did_you_mean(name, sorted(every))
            raise UsageError(f"--input {name}:… names no input of any model; {near}they are {', '.join(sorted(every))}")
    return {model: {name: shape for name, shape in inputs.items() if name in names[model]} for model in models}


def _input_names(model: Path) -> set[str]:
    """Names of the inputs of an ONNX file; empty where it cannot be read, which its import says with the reason."""
    try:
        graph = onnx.load(model, load_external_data=False).graph
    except (OSError, DecodeError):
        return set()
    return {value.name for value in graph.input}
