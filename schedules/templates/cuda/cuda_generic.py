"""Everything that reduces and that no other GPU template claims, through TVM's own CUDA design space.

As the CPU's ``generic``: MetaSchedule's rules write sketches, lists of schedule steps in which some numbers are drawn;
those numbers are our knobs, and applying a config replays its sketch with its own numbers. TVM's check of a launch
(threads, shared memory) comes last, so an invalid launch is refused before anything is compiled.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from functools import lru_cache

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import meta_schedule

from schedules.config import Config, Value
from schedules.errors import ScheduleError
from schedules.space import Space
from schedules.target import Target
from schedules.templates.common.sketches import Design, Sample, drawn
from schedules.templates.common.structure import Anchor, OneAlgorithm
from schedules.templates.cpu.generic import Program, reducing
from schedules.templates.cuda.cuda_structure import STATIC_BYTES, WARP

OP = "cuda_generic"
PROBE = Target.cuda("sm_80")
INNERMOST = 64
VECTOR = 4  # floats of one 16-byte load
THREAD_PART, THREADS = 2, 16  # of a spatial tiling (block, virtual thread, thread, outer, inner)

logger = logging.getLogger(__name__)


class CudaGenericTemplate(OneAlgorithm):
    """Match, space and rewrite for functions that reduce in ways no other GPU template knows."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The last block, if TVM's rules draw a number here and some config makes a valid launch."""
        program = reducing(func)
        return program if program is not None and _first(tvm_ffi.StructuralKey(func), PROBE) else None

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Which sketch, and every number that the sketches draw."""
        assert isinstance(anchor, Program)
        key = tvm_ffi.StructuralKey(anchor.func)
        return replace(_design(key, target).space(OP, self.version), initial=_first(key, target))

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Replay the config's sketch on ``sch`` with its numbers, then TVM's own finishing steps."""
        assert isinstance(anchor, Program)
        _design(tvm_ffi.StructuralKey(anchor.func), target).apply(sch, config)


@lru_cache(maxsize=64)
def _design(func: tvm_ffi.StructuralKey, target: Target) -> Design:
    found = drawn(func.key, tvm.target.Target(_limits(target)), _rules(), _finishes(), VECTOR, 1)
    return replace(found, samples=tuple(tuple(_guessed(sample) for sample in samples) for samples in found.samples))


def _limits(target: Target) -> dict[str, object]:
    """The target as the rules ask for it: they read limits that an architecture alone does not name."""
    return {
        "kind": "cuda",
        "arch": target.arch,
        "max_threads_per_block": target.max_threads,
        "max_num_threads": target.max_threads,
        "thread_warp_size": WARP,
        "max_shared_memory_per_block": min(STATIC_BYTES, target.shared_bytes),
        "registers_per_block": target.registers,
    }


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


@lru_cache(maxsize=256)
def _first(func: tvm_ffi.StructuralKey, target: Target) -> tuple[Config, ...]:
    """Guesses that make a valid launch; none if TVM's rules do not fit the function."""
    try:
        found = _design(func, target)
    except (s_tir.ScheduleError, ScheduleError, ValueError, RuntimeError) as error:
        logger.debug("TVM's rules for CUDA do not fit a function: %s", error)
        return ()
    if not any(found.samples):
        return ()
    valid = []
    for config in found.space(OP, CudaGenericTemplate.version).initial:
        try:
            found.apply(s_tir.Schedule(func.key), config)
        except (s_tir.ScheduleError, ScheduleError, ValueError, RuntimeError) as error:
            logger.debug("%s makes no valid launch: %s", config.to_json(), error)
            continue
        valid.append(config)
    return tuple(valid)
