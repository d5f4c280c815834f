"""The GPU's templates, in the order in which they are tried."""

from __future__ import annotations

from schedules.templates.cuda.cuda_gemm import CudaGemmTemplate
from schedules.templates.cuda.cuda_generic import CudaGenericTemplate
from schedules.templates.cuda.cuda_map import CudaMapTemplate
from schedules.templates.cuda.cuda_rows import CudaRowsTemplate
from schedules.templates.cuda.cuda_tensor import CudaTensorTemplate

CUDA_TEMPLATES = (
    CudaGemmTemplate(),
    CudaTensorTemplate(),
    CudaMapTemplate(),
    CudaRowsTemplate(),
    CudaGenericTemplate(),
)
