"""The plan of a run: what was typed, resolved for this machine, or refused before anything starts.

Its tree has a job per model. ``split.py`` splits a job into parts as long as one of its options asks for several: sets
of shapes and numbers of threads, then precisions, then cores and devices. What is left is tuned as a whole, on lanes
of cores too. So a part may have parts of its own, and each has its share of the budget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.graph.lanes import coupled_lanes, devices_of
from autotune.host.machine import host_target
from autotune.options import AUTO, BALANCED, LATENCY, NONE, ONNXRUNTIME, THROUGHPUT, Options
from schedules.target import Target
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import UsageError

if TYPE_CHECKING:  # loads TVM and ONNX, which a run that would repeat another one does not need
    from autotune.builder.build_request import ImportedModel

MIN_BUDGET_S = 1.0
"""Least budget of a part in seconds; a slot takes about as long."""


@dataclass(frozen=True)
class PartJob:
    """One model to tune, as a whole or in parts.

    Attributes:
        model: its ONNX file.
        options: with its own share of the budget, and the place for its artifact.
        target: what kernels are for; None where other machines measure, which say what they are.
        optional: whether a target that cannot run it leaves it out, instead of ending the run.
        weight: how much one inference of it counts compared with one of the models that share its budget.
        imported: the model, where other parts of the run want it too.
        devices: targets of the devices that its lanes name, in order; empty where all have the target of the options.
        compared: whether its outputs are compared with the reference's. Not at first for a part of a model that is
            compared as a whole (``composition.py``).
    """

    model: Path
    options: Options
    target: Target | None = None
    optional: bool = False
    weight: int = 1
    imported: ImportedModel | None = None
    compared: bool = True
    devices: tuple[Target, ...] = ()

    @property
    def out(self) -> Path:
        """The path of the artifact."""
        return self.options.out if self.options.out is not None else Path(f"{self.model.stem}.tuned")

    @property
    def thread_counts(self) -> tuple[int | None, ...]:
        """The numbers of threads that kernels are tuned for, all cores first; None for those of the target."""
        if self.options.objective != BALANCED or self.target is None:
            return (self.options.threads,)
        return tuple(dict.fromkeys((self.target.threads, _of_a_stream(self.target, self.options))))


@dataclass(frozen=True)
class RunPlan:
    """The resolved plan of a run.

    Attributes:
        options: as typed, with the device that lanes name and the threads of a stream filled in.
        target: the CPU, or the device where nothing else is tuned for; None where other machines measure.
        jobs: a model each, with its weight.
    """

    options: Options
    target: Target | None
    jobs: tuple[PartJob, ...]

    @property
    def searches_together(self) -> bool:
        """Whether one search deals its slots to the kernels of all models: none of them has parts of its own."""
        apart = self.options.shapes or self.options.generate or self.options.precision == AUTO
        apart = apart or self.options.fallback == ONNXRUNTIME or self.options.objective == BALANCED
        return not apart and self.options.lanes == Options.lanes


def plan_run(models: Sequence[Path], options: Options) -> RunPlan:
    """Resolve what ``options`` ask for.

    Raises:
        UsageError: if they do not fit this machine or the models. Options that exclude each other are refused by
            ``Options`` already.
    """
    _check_models(models, options)
    names, devices = devices_of(options.lanes), tuple[Target, ...]()
    if names:
        devices = _device_targets(options, names)
        # One device alone is the target; next to other lanes it is the target of its lane.
        lanes = options.lanes if "," in options.lanes else Options.lanes
        options = replace(options, target=devices[0], lanes=lanes)
    placed = bool(devices_of(options.lanes))
    target = None if options.remote else resolve_target(replace(options, target=None) if placed else options)
    if placed and target is not None:
        coupled_lanes(options.lanes, target.threads)  # cores that this machine lacks are refused here
    if options.objective == THROUGHPUT:
        whole = target or host_target(options.threads)
        options = replace(options, threads=_of_a_stream(whole, options))
        target = target and replace(target, threads=_of_a_stream(whole, options))
    folder = options.out if options.out is not None else Path()
    places = [options.out if len(models) == 1 else folder / f"{model.stem}.tuned" for model in models]
    jobs = (
        PartJob(model, replace(options, out=out), target, weight=options.weights.get(model.stem, 1), devices=devices)
        for model, out in zip(models, places, strict=True)
    )
    return RunPlan(options, target, tuple(jobs))


def resolve_target(options: Options) -> Target:
    """Return the machine to tune for: the one named, else this machine's CPU."""
    return options.target or host_target(options.threads, options.isa)


def shared_options(options: Options, share: float) -> Options:
    """``options`` with a share of the budget and of the trials, which are rounded up: no part is left without any."""
    # 1/3 of 3 must not become 2 because 1/3 is a bit more than that in floating point.
    trials = None if options.trials is None else math.ceil(share * options.trials - 1e-9)
    budget_s = max(MIN_BUDGET_S, share * options.seconds) if options.searches else options.budget_s
    return replace(options, budget_s=budget_s, trials=trials)


def part_options(options: Options, share: float, out: Path, inputs: Mapping[str, tuple[int, ...]]) -> Options:
    """The options of one part of a model, which has one set of shapes and number of threads, and fallbacks of its own.

    Args:
        share: of the whole run's budget and trials.
    """
    own = replace(options, out=out, inputs=dict(inputs), shapes=(), fallback=NONE, objective=LATENCY, streams=None)
    return shared_options(own, share)


def _of_a_stream(whole: Target, options: Options) -> int:
    """Threads of one stream."""
    return max(1, whole.threads // options.streams) if options.streams else 1


def _device_targets(options: Options, names: Sequence[str]) -> tuple[Target, ...]:
    """The targets of the devices that lanes name: the one that was given for all, else each device's own.

    Raises:
        UsageError: if a target is none of a device, or a device is not in this machine.
    """
    if options.target is None:
        from autotune.backends.cuda.device import device_targets  # loads TVM

        return device_targets(options.lanes, names)
    if not options.target.arch:
        wanted = f"--lanes {options.lanes} needs a CUDA target for {names[0]}"
        raise UsageError(f"{wanted}; leave --target out, or give one")
    return (options.target,) * len(names)


def _check_models(models: Sequence[Path], options: Options) -> None:
    if not models:
        raise UsageError("no model was given; give the path of an ONNX file, or several")
    if options.weights and len(models) == 1:
        raise UsageError("--weight: compares models, and there is one; give more models or leave it out")
    if options.generate and (options.inputs or options.shapes):
        raise UsageError("--generate guesses the shapes; leave out --input, and give --positions or --prompts")
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
