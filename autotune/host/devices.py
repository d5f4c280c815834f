"""Devices of this machine that can run kernels, for ``tune devices``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import tvm

from autotune.host.machine import Host, counted, host_target, nodes_of, read_host, thread_cpus
from autotune.host.roofline import MEMORY_BYTES, measure_roofline
from schedules.target import Target


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


def describe(target: Target, host: Host | None = None) -> list[str]:
    """Lines for people: the CPU, which threads are used and why not more, the caches."""
    host = host or read_host()
    reasons = [f"{host.online} CPUs online", f"{counted(host.allowed)} allowed"]
    reasons.append(f"{len(host.cores)} physical cores")
    reasons.append("no cgroup quota" if host.quota is None else f"cgroup quota of {host.quota:g} CPUs")
    level = f"{target.isa} ({target.mcpu or 'any'}), {target.vector_bytes}-byte vectors"
    pinned = ", ".join(str(cpu) for cpu in thread_cpus(target.threads, host))
    return [
        f"CPU      {host.model}",
        f"ISA      {level}; available: {', '.join(host.isas)}",
        f"threads  {target.threads} of {host.usable_threads} usable, on CPU {pinned} ({', '.join(reasons)})",
        f"caches   L1 {_size(target.l1_bytes)}, L2 {_size(target.l2_bytes)}, L3 {_size(target.l3_bytes)}",
        *_shared(target, host),
    ]


def _shared(target: Target, host: Host) -> list[str]:
    """Lines about clusters, slices and nodes that the threads use; none on a machine with one of each."""
    cpus = frozenset(thread_cpus(target.threads, host))
    lines = []
    for level, name in ((2, "clusters"), (3, "slices")):
        groups = Counter((cache.size_bytes, len(cache.cpus & cpus)) for cache in host.caches if cache.level == level)
        texts = [
            f"{number} × {_size(size)} for {sharing} thread{'s' * (sharing > 1)}"
            for (size, sharing), number in sorted(groups.items())
            if sharing
        ]
        if any(sharing > 1 for _, sharing in groups) and (level == 2 or sum(groups.values()) > 1):
            lines.append(f"{name:8} L{level}: {', '.join(texts)}")
    nodes = nodes_of(cpus, host)
    if len(nodes) > 1:
        lines.append(f"memory   {len(nodes)} nodes, beside {', '.join(str(len(node)) for node in nodes)} threads")
    return lines


def _size(count: int) -> str:
    return f"{count / 2**20:g} MiB" if count >= 2**20 else f"{count / 2**10:g} KiB"
