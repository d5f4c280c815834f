"""Everything that reduces and that no other GPU template claims, through TVM's own CUDA design space.

As the CPU's ``generic``: MetaSchedule's rules write sketches, lists of schedule steps in which some numbers are drawn;
those numbers are our knobs, and applying a config replays its sketch with its own numbers. TVM's check of a launch
(threads, shared memory) comes last, so an invalid launch is refused before anything is compiled.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import meta_schedule
from tvm.s_tir.meta_schedule import _ffi_api as ffi

from schedules.config import Config, Value
from schedules.errors import ScheduleError, check
from schedules.space import Knob, Space
from schedules.target import Target
from schedules.templates.generic import Program
from schedules.templates.sketches import SEED, SKETCH_LIMIT, Design, Sample, _log, _samples
from schedules.templates.structure import (
    REDUCE,
    SPATIAL,
    Anchor,
    OneAlgorithm,
    blocks_in_order,
    extents,
    parameter_shapes,
)

OP = "cuda_generic"
PROBE = Target.cuda("sm_80")
INNERMOST = 64
THREAD_PART, THREADS = 2, 16  # of a spatial tiling (block, virtual thread, thread, outer, inner)


class CudaGenericTemplate(OneAlgorithm):
    """Match, space and rewrite for functions that reduce in ways no other GPU template knows."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The last block, if TVM's rules draw a number here and some config makes a valid launch."""
        blocks = blocks_in_order(func)
        if not any(extents(block, REDUCE) for block in blocks):
            return None
        last = blocks[-1]
        program = Program(
            block=last.name_hint,
            spatial=extents(last, SPATIAL),
            reduction=extents(last, REDUCE),
            epilogue=(),
            prologue=tuple(block.name_hint for block in blocks[:-1]),
            shapes=parameter_shapes(func),
            func=func,
        )
        return program if _first(tvm_ffi.StructuralKey(func), PROBE) else None

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Which sketch, and every number that the sketches draw."""
        assert isinstance(anchor, Program)
        key = tvm_ffi.StructuralKey(anchor.func)
        return replace(_space(_design(key, target)), first=_first(key, target))

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Replay the config's sketch on ``sch`` with its numbers, then TVM's own finishing steps."""
        assert isinstance(anchor, Program)
        found = _design(tvm_ffi.StructuralKey(anchor.func), target)
        sketch = config.integer("sketch")
        check(sketch < len(found.traces), f"sketch is {sketch}, the function has {len(found.traces)}")
        found.replay(sch, sketch, dict(config.items))


@lru_cache(maxsize=64)
def _design(func: tvm_ffi.StructuralKey, target: Target) -> Design:
    module = tvm.IRModule({"main": func.key})
    generator = meta_schedule.space_generator.PostOrderApply(None, _rules(), _finishes(), {})
    native = tvm.target.Target({"kind": "cuda", "arch": target.arch})
    ffi.TuneContextInitialize(ffi.TuneContext(module, native, generator, None, "main", 1, SEED, _log))
    traces = tuple(sch.trace for sch in generator.generate_design_space(module)[:SKETCH_LIMIT])
    samples = tuple(tuple(_guessed(sample) for sample in _samples(trace, 4, 1)) for trace in traces)
    return Design(traces, samples, tuple(generator.postprocs))


def _rules() -> list[meta_schedule.ScheduleRule]:
    """MetaSchedule's rules for CUDA."""
    rules = meta_schedule.schedule_rule
    return [
        rules.InlineConstantScalars(),
        rules.AutoInline(
            into_producer=False,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=False,
            require_injective=False,
            require_ordered=False,
        ),
        rules.MultiLevelTiling(
            "SSSRRSRS",
            tile_binds=["blockIdx.x", "vthread.x", "threadIdx.x"],
            max_innermost_factor=INNERMOST,
            vector_load_lens=[1, 2, 4],
            reuse_read=rules.ReuseType(req="must", levels=[4], scope="shared"),
            reuse_write=rules.ReuseType(req="must", levels=[3], scope="local"),
        ),
        rules.AutoInline(
            into_producer=True,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=False,
            require_injective=False,
            require_ordered=False,
        ),
        rules.CrossThreadReduction([4, 8, 16, 32, 64, 128, 256, 512]),
        rules.ParallelizeVectorizeUnroll(-1, -1, [0, 16, 64, 512], unroll_explicit=True),
        rules.AutoBind(256, [32, 64, 128, 256, 512, 1024]),
    ]


def _finishes() -> list[meta_schedule.Postproc]:
    steps = meta_schedule.postproc
    return [
        steps.DisallowDynamicLoop(),
        steps.RewriteCooperativeFetch(),
        steps.RewriteUnboundBlock(256),
        steps.RewriteParallelVectorizeUnroll(),
        steps.RewriteReductionBlock(),
        steps.VerifyGPUCode(),
    ]


def _guessed(sample: Sample) -> Sample:
    """A plausible spatial tiling: some 16 threads along the axis, two outputs each."""
    if not isinstance(sample.guess, tuple) or len(sample.guess) != 5:
        return sample

    def distance(tiling: Value) -> float:
        assert isinstance(tiling, tuple)
        parts = [math.log2(part) for part in tiling]
        wanted = abs(parts[THREAD_PART] - math.log2(THREADS))
        return wanted + parts[1] + 0.5 * abs(parts[3] + parts[4] - 1)

    return replace(sample, guess=min(sample.choices, key=distance))


def _space(found: Design) -> Space:
    choices = {
        sample.knob: sample.choices for samples in found.samples for sample in samples if len(sample.choices) > 1
    }
    sketches = Knob("sketch", tuple(range(len(found.traces))))
    return Space(OP, CudaGenericTemplate.version, (sketches, *(Knob(name, values) for name, values in choices.items())))


@lru_cache(maxsize=256)
def _first(func: tvm_ffi.StructuralKey, target: Target) -> tuple[Config, ...]:
    """Guesses that make a valid launch; none if TVM's rules do not fit the function."""
    try:
        found = _design(func, target)
        if not any(found.samples):
            return ()
    except (s_tir.ScheduleError, ScheduleError, ValueError, RuntimeError):
        return ()
    space = _space(found)
    valid = []
    for sketch in range(len(found.traces)):
        guesses: dict[str, Value] = {}
        for samples in (found.samples[sketch], *found.samples):
            for sample in samples:
                guesses.setdefault(sample.knob, sample.guess)
        guesses["sketch"] = sketch
        config = Config(space.identity, tuple((knob.name, guesses[knob.name]) for knob in space.knobs))
        try:
            found.replay(s_tir.Schedule(func.key), sketch, dict(config.items))
        except (s_tir.ScheduleError, ScheduleError, ValueError, RuntimeError):
            continue
        valid.append(config)
    return tuple(valid)
