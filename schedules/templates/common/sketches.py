"""TVM's own design spaces, as sketches and the numbers they draw.

MetaSchedule's rules write *sketches*: lists of schedule steps in which some numbers are drawn. Only these rules and
the replay of their steps are used. Its tuner is not, and neither is ``TuneContext``'s constructor, which imports every
tensor intrinsic of every backend (12–16 s): the object underneath is made by the same FFI call without it.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import meta_schedule
from tvm.s_tir.meta_schedule import _ffi_api as ffi
from tvm.s_tir.schedule import Instruction, Trace

from schedules.config import Config, Value
from schedules.space import Knob, Space
from schedules.templates.common.soundness import repeated_sum, unwritten
from schedules.templates.common.structure import divisors
from schedules.vocabulary.errors import ScheduleError, check

SKETCH_LIMIT = 6  # a chain of reductions multiplies their variants; the first ones are the plainest
UNROLL = (0, 16, 64)  # MetaSchedule also offers 512: such candidates compile for tens of seconds
TILING_LIMIT = 2048
PLACES = tuple(range(-2, 8))  # inlined, at the root, under the n-th loop; the rule takes the next that is legal
SEED = 1  # of the numbers inside the sketches, all of which are replaced later: it only has to be the same everywhere

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sample:
    """One number that a sketch draws.

    Attributes:
        step: index of the step that draws it.
        knob: name of the knob that decides it.
        choices: what it may be.
        guess: a plausible choice.
    """

    step: int
    knob: str
    choices: tuple[Value, ...]
    guess: Value


@dataclass(frozen=True)
class Design:
    """The design space that TVM's rules write for one function on one target.

    Attributes:
        traces: the sketches.
        samples: per sketch, the numbers it draws. A knob that sketches have in common has one name.
        finishes: TVM's steps after a sketch; they turn its marks into parallel, vectorised and unrolled loops.
        usable: numbers of the sketches that compute all of the result.
    """

    traces: tuple[Trace, ...]
    samples: tuple[tuple[Sample, ...], ...]
    finishes: tuple[meta_schedule.Postproc, ...]
    usable: tuple[int, ...]

    def space(self, op: str, version: int) -> Space:
        """Return the space of sketches and their numbers; first one guess per sketch, sums in vectors first."""
        choices = {
            sample.knob: sample.choices for samples in self.samples for sample in samples if len(sample.choices) > 1
        }
        sketches = Knob("sketch", self.usable)
        knobs = (sketches, *(Knob(name, values) for name, values in choices.items()))
        return Space(op, version, knobs, initial=tuple(self._guesses(Space(op, version, knobs))))

    def _guesses(self, space: Space) -> Iterator[Config]:
        guesses: dict[str, Value] = {}
        for samples in self.samples:
            for sample in samples:
                guesses.setdefault(sample.knob, sample.guess)
        for sketch in sorted(self.usable, key=lambda number: not sums_in_vectors(self.traces[number])):
            chosen = {**guesses, "sketch": sketch, **{s.knob: s.guess for s in self.samples[sketch]}}
            yield Config(space.identity, tuple((knob.name, chosen[knob.name]) for knob in space.knobs))

    def apply(self, sch: s_tir.Schedule, config: Config) -> None:
        """Replay the config's sketch on ``sch`` with its numbers.

        Raises:
            ScheduleError: as ``replay``, and if there is no such sketch.
        """
        sketch = config.integer("sketch")
        check(sketch in self.usable, f"sketch is {sketch}, the function has {self.usable}")
        self.replay(sch, sketch, dict(config.items))

    def replay(self, sch: s_tir.Schedule, sketch: int, values: Mapping[str, Value]) -> None:
        """Apply sketch number ``sketch`` to ``sch`` with the numbers ``values`` (knob → choice; guesses elsewhere).

        Raises:
            ScheduleError: if a number is not on offer, or TVM refuses the program that results.
        """
        steps = self.traces[sketch].insts
        decided = {}
        for sample in self.samples[sketch]:
            value = values.get(sample.knob, sample.guess)
            # TVM would bend a wrong tiling until it fits, and another program than the config's would be measured.
            check(value in sample.choices, f"{sample.knob} is {value}, which this function does not offer")
            decided[steps[sample.step]] = _decision(steps[sample.step], value)
        Trace(steps, decided).apply_to_schedule(sch, remove_postproc=False)
        for finish in self.finishes:
            if isinstance(finish, meta_schedule.postproc.RewriteReductionBlock):
                repeated = repeated_sum(sch.mod["main"])
                check(repeated is None, f"{repeated} would be summed several times")
            check(finish.apply(sch), f"{type(finish).__name__} refuses the program")


def drawn(
    func: tirx.PrimFunc,
    native: tvm.target.Target,
    rules: list[meta_schedule.ScheduleRule],
    finishes: list[meta_schedule.Postproc],
    lanes: int,
    unroll: int,
) -> Design:
    """Return the design that ``rules`` write for ``func`` on ``native``; see ``_samples`` for the numbers."""
    module = tvm.IRModule({"main": func})
    generator = meta_schedule.space_generator.PostOrderApply(None, rules, finishes, {})
    ffi.TuneContextInitialize(ffi.TuneContext(module, native, generator, None, "main", 1, SEED, _log))
    traces = tuple(sch.trace for sch in generator.generate_design_space(module)[:SKETCH_LIMIT])
    samples = tuple(_samples(trace, lanes, unroll) for trace in traces)
    design = Design(traces, samples, tuple(generator.postprocs), tuple(range(len(traces))))
    return replace(design, usable=tuple(number for number in design.usable if _writes_all(design, number, func)))


def sums_in_vectors(trace: Trace) -> bool:
    """Return whether a sketch adds up neighbours side by side: it makes partial sums of the inner loop of a reduction.

    A sum of 120,000 numbers takes 2.1 µs then, with partial sums of the outer loop 30, with none 49 (Zen 5).
    """
    inner = [step.outputs[-1] for step in trace.insts if step.kind.name == "Split"]
    factored = [step.inputs[0] for step in trace.insts if step.kind.name == "RFactor"]
    return any(loop.same_as(last) for loop in factored for last in inner)


def _writes_all(design: Design, sketch: int, func: tirx.PrimFunc) -> bool:
    """Return whether a sketch with its guesses computes all of the result; True where the guesses do not fit."""
    sch = s_tir.Schedule(func)
    try:
        design.replay(sch, sketch, {})
    except (s_tir.ScheduleError, ScheduleError, ValueError, RuntimeError):
        return True
    return unwritten(sch.mod["main"]) is None


def _log(_level: int, file: str, line: int, message: str) -> None:
    """TVM's C++ reports what its rules do through this."""
    logger.debug("%s:%d: %s", file, line, message)


def _samples(trace: Trace, lanes: int, unroll: int) -> tuple[Sample, ...]:
    """The numbers ``trace`` draws. Equal choices in equal order get equal names, so that sketches share knobs.

    Args:
        lanes: elements of a vector.
        unroll: position in ``UNROLL`` of a plausible choice.
    """
    drawn = {index: step for index, step in enumerate(trace.insts) if step in trace.decisions}
    tilings = [index for index, step in drawn.items() if step.kind.name == "SamplePerfectTile"]
    spatial = [index for index in tilings if len(trace.decisions[drawn[index]]) > 2]
    innermost = (spatial or tilings)[-1:]  # the axis that becomes the vector: spatial where there is such a tiling
    seen: Counter[str] = Counter()
    samples = []
    for index, step in drawn.items():
        label, choices, guess = _choices(step, trace.decisions[step], lanes if index in innermost else 4, unroll)
        samples.append(Sample(index, f"{label}.{seen[label]}", choices, guess))
        seen[label] += 1
    return tuple(samples)


def _choices(step: Instruction, drawn: Any, inner: int, unroll: int) -> tuple[str, tuple[Value, ...], Value]:
    """Name, choices and guess of what ``step`` draws; ``inner`` is the innermost factor a tiling should have."""
    kind = step.kind.name
    if kind == "SamplePerfectTile":
        parts = [int(part) for part in drawn]
        tilings = tilings_of(math.prod(parts), len(parts), int(step.attrs[1]))
        return f"tile{len(parts)}x{math.prod(parts)}", tilings, _balanced(tilings, inner)
    if kind == "SampleCategorical":
        candidates = tuple(int(candidate) for candidate in step.attrs[0])
        label = "unroll" if candidates == UNROLL else "pick" + "x".join(map(str, candidates))
        return label, candidates, candidates[min(unroll, len(candidates) - 1)]
    if kind == "SampleComputeLocation":
        return "place", PLACES, 0
    raise ScheduleError(f"TVM draws a number in a way this version does not know: {kind}")


@lru_cache(maxsize=256)
def tilings_of(extent: int, parts: int, innermost: int) -> tuple[tuple[int, ...], ...]:
    """Factorisations of ``extent`` into ``parts`` ordered factors, the last at most ``innermost``; evenly thinned."""
    if parts == 1:
        return ((extent,),) if extent <= innermost else ()
    tilings = [
        (*head, last) for last in divisors(extent, innermost) for head in _factorisations(extent // last, parts - 1)
    ]
    tilings.sort()
    stride = -(-len(tilings) // TILING_LIMIT)
    return tuple(tilings[::stride])


def _factorisations(extent: int, parts: int) -> list[tuple[int, ...]]:
    """All ordered factorisations."""
    if parts == 1:
        return [(extent,)]
    return [(d, *rest) for d in divisors(extent) for rest in _factorisations(extent // d, parts - 1)]


def _balanced(choices: tuple[tuple[int, ...], ...], inner: int) -> tuple[int, ...]:
    """The tiling whose innermost factor is nearest to ``inner`` and the one before it to 4."""

    def distance(tiling: tuple[int, ...]) -> float:
        inwards = itertools.chain([abs(math.log2(tiling[-1] / inner))], (abs(math.log2(t / 4)) for t in tiling[-2:-1]))
        return sum(inwards) + 0.1 * sum(math.log2(t) for t in tiling[1:-2])

    return min(choices, key=distance)


def _decision(step: Instruction, value: Value) -> int | list[int]:
    """``value`` in the form in which the trace keeps it."""
    if isinstance(value, tuple):
        return list(value)
    number = int(value)
    if step.kind.name == "SampleCategorical":
        return [int(candidate) for candidate in step.attrs[0]].index(number)
    return number
