"""Everything that reduces and that no other GPU template claims, through TVM's own CUDA design space.

The numbers that the rules draw are knobs (``sketch_template``). TVM's check of a launch (threads, shared memory) comes
last, so an invalid launch is refused before anything is compiled.
"""

from __future__ import annotations

import math
from dataclasses import replace

import tvm
from tvm import tirx
from tvm.s_tir import meta_schedule

from schedules.config import Value
from schedules.target import Target
from schedules.templates.common.sketch_template import SketchTemplate
from schedules.templates.common.sketches import Design, Sample, drawn
from schedules.templates.cuda.cuda_structure import STATIC_BYTES, WARP

OP = "cuda_generic"
INNERMOST = 64
VECTOR = 4  # floats of one 16-byte load
THREAD_PART, THREADS = 2, 16  # of a spatial tiling (block, virtual thread, thread, outer, inner)


class CudaGenericTemplate(SketchTemplate):
    """Match, space and rewrite for functions that reduce in ways no other GPU template knows."""

    name = OP
    version = 1
    probe = Target.cuda("sm_80")
    limited = True

    def expand(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """``func`` as it is."""
        return func

    def draw(self, func: tirx.PrimFunc, target: Target) -> Design:
        """What MetaSchedule's rules for CUDA write for ``func``."""
        found = drawn(func, tvm.target.Target(_limits(target)), _rules(), _finishes(), VECTOR, 1)
        return replace(found, samples=tuple(tuple(map(_guessed, samples)) for samples in found.samples))


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
