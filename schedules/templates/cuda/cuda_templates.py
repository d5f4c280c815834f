"""The GPU's templates, in the order in which they are tried: special patterns first, the generic one last."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from schedules.target import Target
from schedules.templates.common.structure import axis_loops, blocks_in_order
from schedules.templates.cuda.cuda_gemm import CudaGemmTemplate
from schedules.templates.cuda.cuda_map import CudaMapTemplate
from schedules.templates.cuda.cuda_recurrent import CudaRecurrentTemplate
from schedules.templates.cuda.cuda_recurrent_steps import untuned, walk_of
from schedules.templates.cuda.cuda_reduce import CudaReduceTemplate
from schedules.templates.cuda.cuda_rows import CudaRowsTemplate
from schedules.templates.cuda.cuda_structure import bind_flat, inline_all, named
from schedules.templates.cuda.cuda_tensor import CudaTensorTemplate
from schedules.templates.template import TemplateSet, unchanged
from schedules.vocabulary.errors import check

THREADS = 128


def cuda_baseline(func: tirx.PrimFunc, _target: Target) -> s_tir.Schedule:
    """The untuned form: one thread per output element, nothing shared, no knob; one kernel per stage.

        every stage that is left after inlining:   for i, j, k: …   →   blockIdx.x, threadIdx.x = i·j   for k: …

    It is the untuned build and the reference of every candidate, so it takes the fewest and safest steps.

    Raises:
        ScheduleError: if a stage is no nest of loops around one block, as sorting is written.
    """
    layer = walk_of(func)
    if layer is not None:
        return s_tir.Schedule(untuned(layer).with_attr("global_symbol", "main"))
    sch = s_tir.Schedule(func)
    for name in inline_all(sch):
        block = sch.get_sblock(name)
        # A single number has an axis, but no loop over it.
        spatial, rest = axis_loops(sch, block) if sch.get_loops(block) else ([], [])
        if not spatial:
            spatial = [sch.add_unit_loop(rest[0] if rest else block)]
        sch.reorder(*spatial, *rest)
        bind_flat(sch, spatial, THREADS)
    check(blocks_in_order(sch.mod["main"]), "the function computes nothing")
    return sch


def _tvm_target(target: Target) -> tvm.target.Target:
    return tvm.target.Target({"kind": "cuda", "arch": target.arch})


CUDA_TEMPLATES = TemplateSet(
    kind="cuda",
    templates=(
        CudaRecurrentTemplate(),
        CudaGemmTemplate(),
        CudaTensorTemplate(),
        CudaMapTemplate(),
        CudaRowsTemplate(),
        CudaReduceTemplate(),
    ),
    baseline=cuda_baseline,
    rename=named,
    expand=unchanged,  # GPUs have instructions for exp and its like
    tvm_target=_tvm_target,
    half_native=True,
    activations=lambda _: "uint8",
    by_hand=False,
    channels_last=True,
)
