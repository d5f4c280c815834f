"""The GPU's templates, in the order in which they are tried: special patterns first, the generic one last."""

from __future__ import annotations

import tvm

from schedules.target import Target
from schedules.templates.cuda.cuda_baseline import cuda_baseline
from schedules.templates.cuda.cuda_gemm import CudaGemmTemplate
from schedules.templates.cuda.cuda_map import CudaMapTemplate
from schedules.templates.cuda.cuda_recurrent import CudaRecurrentTemplate
from schedules.templates.cuda.cuda_reduce import CudaReduceTemplate
from schedules.templates.cuda.cuda_rows import CudaRowsTemplate
from schedules.templates.cuda.cuda_structure import named
from schedules.templates.cuda.cuda_tensor import CudaTensorTemplate
from schedules.templates.template import TemplateSet, unchanged


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
