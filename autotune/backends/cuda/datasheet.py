"""The rooflines of CUDA devices, from their data sheets: bounds, never measured."""

from __future__ import annotations

from autotune.host.roofline import Roofline
from schedules.target import Target

PEAKS = {
    "sm_80": (19500.0, 2039.0),
    "sm_86": (37400.0, 936.0),
    "sm_89": (91600.0, 1008.0),
    "sm_90": (67000.0, 4800.0),
}
"""GPU architecture → fp32 GFLOPS and GB/s of memory of its fastest common device: A100, A10G, L40S and H200."""

L2_PER_MEMORY = 4.0
"""Bandwidth of L2 over that of memory. Heuristic and generous: no data sheet has it, and a bound may be too low in
seconds but never too high."""


def datasheet_roofline(target: Target) -> Roofline:
    """The roofline of a CUDA target, one of the architectures of ``PEAKS``."""
    gflops, memory_gb_s = PEAKS[target.arch]
    return Roofline(gflops, memory_gb_s, L2_PER_MEMORY * memory_gb_s, target.l2_bytes)
