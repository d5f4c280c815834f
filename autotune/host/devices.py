"""Devices of this machine that can run kernels, for ``tune devices``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm

from autotune.host.machine import describe, host_target, read_host
from autotune.host.roofline import MEMORY_BYTES, measure_roofline


@dataclass(frozen=True)
class DeviceReport:
    """The devices that kernels may run on here: for people, and for programs."""

    lines: list[str]
    data: dict[str, Any]


def report_devices() -> DeviceReport:
    """This machine's CPU with its measured peaks, and the CUDA devices that TVM can use."""
    host, target = read_host(), host_target()
    peak = measure_roofline(target)
    gpus = [
        {"device": f"cuda:{number}", "name": str(device.device_name), "arch": str(device.compute_version)}
        for number, device in enumerate(cuda_devices())
    ]
    cpu = {
        "model": host.model,
        "architecture": host.architecture,
        "isas": list(host.isas),
        "mcpu": target.mcpu,
        "online": host.online,
        "allowed": len(host.allowed),
        "cores": len(host.cores),
        "quota": host.quota,
        "threads": target.threads,
        "l1_bytes": host.l1_bytes,
        "l2_bytes": host.l2_bytes,
        "l3_bytes": host.l3_bytes,
        "caches": [
            {"level": cache.level, "bytes": cache.size_bytes, "cpus": sorted(cache.cpus)} for cache in host.caches
        ],
        "nodes": [sorted(node) for node in host.nodes],
        "peak_gflops": peak.gflops,
        "peak_bf16_gflops": peak.bf16_gflops,
        "peak_int8_gops": peak.int8_gops,
        "memory_gb_s": peak.memory_gb_s,
        "l2_gb_s": peak.l2_gb_s,
        "target": target.fingerprint,
    }
    products = f"{peak.gflops:.0f} GFLOPS fp32, {peak.bf16_gflops:.0f} bf16, {peak.int8_gops:.0f} Gop/s int8"
    speeds = f"{products}, {peak.memory_gb_s:.1f} GB/s of {MEMORY_BYTES >> 20} MiB, {peak.l2_gb_s:.0f} GB/s from L2"
    lines = [
        *describe(target, host),
        f"peak     {speeds} (measured)",
        f"target   {target.fingerprint}",
        *(f"GPU      {gpu['device']}: {gpu['name']} (compute capability {gpu['arch']})" for gpu in gpus),
    ]
    return DeviceReport(lines if gpus else [*lines, "GPU      none"], {"cpu": cpu, "gpus": gpus})


def cuda_devices() -> list[Any]:
    """Return the CUDA devices that TVM can use, in order."""
    devices: list[Any] = []
    while (device := tvm.cuda(len(devices))).exist:
        devices.append(device)
    return devices
