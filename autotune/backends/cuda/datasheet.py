"""The rooflines of CUDA devices, from their data sheets: bounds, never measured."""

from __future__ import annotations

from autotune.host.roofline import Roofline
from schedules.target import Target

PEAKS = {
    "sm_80": (19500.0, 2039.0, 156000.0),
    "sm_86": (37400.0, 936.0, 75000.0),
    "sm_89": (91600.0, 1008.0, 183000.0),
    "sm_90": (67000.0, 4800.0, 495000.0),
}
"""GPU architecture → fp32 GFLOPS, GB/s of memory and TF32 GFLOPS of its fastest common devices: A100; RTX 3090
and A40; L40S; H200."""

HALVES, BYTES = 2, 4
"""Speed of tensor cores on types of 16 and of 8 bits, relative to TF32."""

L2_PER_MEMORY = 4.0
"""Bandwidth of L2 over that of memory. Heuristic and generous: no data sheet has it, and a bound may be too low in
seconds but never too high."""


def datasheet_roofline(target: Target) -> Roofline:
    """The roofline of a CUDA target, one of the architectures of ``PEAKS``."""
    gflops, memory_gb_s, tf32 = PEAKS[target.arch]
    short = {"bf16_gflops": HALVES * tf32, "int8_gops": BYTES * tf32, "tf32_gflops": tf32}
    return Roofline(gflops, memory_gb_s, L2_PER_MEMORY * memory_gb_s, target.l2_bytes, **short)
