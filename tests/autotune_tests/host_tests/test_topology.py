"""Shared caches and memory nodes, read from trees of files as the kernel makes them of machines that we do not have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.host import devices, roofline
from autotune.host.devices import describe
from autotune.host.machine import Host, core_groups, host_target, l2_share, nodes_of, read_host, thread_cpus
from autotune.host.roofline import MEMORY_BYTES, Roofline, memory_bytes, read_gb_s
from schedules.target import Target

MIB = 1 << 20


@dataclass(frozen=True)
class Core:
    """A physical core of a machine.

    Attributes:
        cpus: its logical CPUs.
        l2, l3: all CPUs that share its caches; no L3 if empty.
        l2_size, l3_size: as the kernel writes them.
    """

    cpus: tuple[int, ...]
    package: int
    node: int
    l2: tuple[int, ...]
    l3: tuple[int, ...]
    l2_size: str = "1024K"
    l3_size: str = "32768K"


def listed(cpus: Iterable[int]) -> str:
    return ",".join(map(str, cpus))


def tree(root: Path, cores: list[Core]) -> Callable[[str], str | None]:
    """Write the files below ``root``, and return what reads them."""
    files: dict[str, str] = {}
    for number, core in enumerate(cores):
        for cpu in core.cpus:
            folder = f"cpu/cpu{cpu}"
            files |= {
                f"{folder}/topology/core_id": str(number),
                f"{folder}/topology/physical_package_id": str(core.package),
            }
            caches = [(1, "Data", "32K", core.cpus), (1, "Instruction", "32K", core.cpus)]
            caches += [(2, "Unified", core.l2_size, core.l2)]
            caches += [(3, "Unified", core.l3_size, core.l3)] * bool(core.l3)
            for index, (level, kind, size, shared) in enumerate(caches):
                files |= {
                    f"{folder}/cache/index{index}/{name}": text
                    for name, text in (
                        ("level", str(level)),
                        ("type", kind),
                        ("size", size),
                        ("shared_cpu_list", listed(shared)),
                    )
                }
    nodes = sorted({core.node for core in cores})
    files["node/online"] = listed(nodes)
    for node in nodes:
        files[f"node/node{node}/cpulist"] = listed(cpu for core in cores if core.node == node for cpu in core.cpus)
    for name, text in files.items():
        path = root / "sys/devices/system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def read(path: str) -> str | None:
        file = root / path.lstrip("/")
        return file.read_text().strip() if file.is_file() else None

    return read


def alike(count: int, per_l2: int, per_l3: int, per_node: int, siblings: bool = False, **more: Any) -> list[Core]:
    """So many cores in a row, of which some share an L2, an L3 and a node; packages are nodes."""
    own = [(cpu, cpu + count) if siblings else (cpu,) for cpu in range(count)]

    def group(cpu: int, size: int) -> tuple[int, ...]:
        return tuple(cpus for core in own[cpu // size * size :][:size] for cpus in core)

    return [
        Core(own[cpu], cpu // per_node, cpu // per_node, group(cpu, per_l2), group(cpu, per_l3), **more)
        for cpu in range(count)
    ]


EFFICIENT = tuple(range(8, 16))
HYBRID = [
    *(Core((2 * p, 2 * p + 1), 0, 0, (2 * p, 2 * p + 1), tuple(range(16)), "2048K", "36M") for p in range(4)),
    *(Core((e,), 0, 0, EFFICIENT[(e - 8) // 4 * 4 :][:4], tuple(range(16)), "4096K", "36M") for e in EFFICIENT),
]
"""Four cores with two logical CPUs and an L2 each, and two clusters of four cores that share one."""


def levels(host: Host, level: int) -> list[tuple[int, int]]:
    """(bytes, CPUs) of all caches of a level."""
    return [(cache.size_bytes, len(cache.cpus)) for cache in host.caches if cache.level == level]


def test_two_sockets_have_an_l3_and_a_node_each(tmp_path: Path) -> None:
    host = read_host(tree(tmp_path, alike(16, 1, 8, 8, siblings=True)), range(32))
    assert levels(host, 2) == [(MIB, 2)] * 16
    assert levels(host, 3) == [(32 * MIB, 16)] * 2
    assert [len(node) for node in nodes_of(thread_cpus(16, host), host)] == [8, 8]
    assert len(nodes_of(thread_cpus(8, host), host)) == 1
    text = describe(host_target(host=host), host)
    assert text[-2:] == ["slices   L3: 2 × 32 MiB for 8 threads", "memory   2 nodes, beside 8, 8 threads"]


def test_slices_of_an_l3_within_one_node(tmp_path: Path) -> None:
    host = read_host(tree(tmp_path, alike(16, 1, 4, 16)), range(16))
    assert levels(host, 3) == [(32 * MIB, 4)] * 4
    assert describe(host_target(host=host), host)[-1] == "slices   L3: 4 × 32 MiB for 4 threads"


def test_cores_of_a_cluster_share_its_l2(tmp_path: Path) -> None:
    host = read_host(tree(tmp_path, alike(8, 4, 8, 8, l2_size="4096K")), range(8))
    assert [l2_share(host, threads) for threads in (1, 2, 4, 8)] == [4 * MIB, 2 * MIB, MIB, MIB]
    target = host_target(host=host)
    assert (target.l2_bytes, host.l2_bytes) == (MIB, 4 * MIB)
    assert describe(target, host)[-1] == "clusters L2: 2 × 4 MiB for 4 threads"


def test_the_smallest_share_counts_where_cores_differ(tmp_path: Path) -> None:
    host = read_host(tree(tmp_path, HYBRID), range(16))
    assert (len(host.cores), host_target(host=host).threads) == (12, 12)
    assert [l2_share(host, threads) for threads in (4, 5, 12)] == [2 * MIB, 2 * MIB, MIB]
    assert sorted(levels(host, 2)) == [(2 * MIB, 2)] * 4 + [(4 * MIB, 4)] * 2


def test_second_threads_of_a_core_leave_the_share_as_it_is(tmp_path: Path) -> None:
    """A target's name includes the share: logs of all logical CPUs stay valid."""
    host = read_host(tree(tmp_path, alike(4, 1, 4, 4, siblings=True)), range(8))
    assert l2_share(host, 4) == l2_share(host, 8) == MIB


def test_holes_in_the_mask_and_cpus_that_are_off(tmp_path: Path) -> None:
    """The kernel has no cache and topology of CPU 5, which is off; the mask leaves out 0, 3 and 6."""
    cores = [core for core in alike(8, 4, 8, 8, l2_size="4096K") if core.cpus != (5,)]
    host = read_host(tree(tmp_path, cores), (1, 2, 4, 7))
    assert host.cores == (1, 2, 4, 7)
    assert l2_share(host, 4) == 2 * MIB
    groups = core_groups(2, 2, host)
    assert sorted(cpu for group in groups for cpu in group) == [1, 2, 4, 7]


def test_one_of_everything_is_not_worth_a_line(tmp_path: Path) -> None:
    host = read_host(tree(tmp_path, alike(2, 1, 2, 2)), range(2))
    assert host_target(host=host).l2_bytes == host.l2_bytes == MIB
    assert len(describe(host_target(host=host), host)) == 4


def test_a_machine_that_does_not_say_who_shares_is_as_before(tmp_path: Path) -> None:
    read = tree(tmp_path, alike(4, 4, 4, 4))
    host = read_host(lambda path: None if path.endswith("shared_cpu_list") else read(path), range(4))
    assert (host.caches, host_target(host=host).l2_bytes) == ((), MIB)


def test_this_machine_keeps_its_target() -> None:
    """Private caches: the share is the size that the kernel reports."""
    host = read_host()
    private = all(len(cache.cpus & set(host.cores)) <= 1 for cache in host.caches if cache.level == 2)
    assert not private or host_target().l2_bytes == (host.l2_bytes or host_target().l2_bytes)


@pytest.mark.parametrize(("threads", "expected"), [(1, MEMORY_BYTES), (16, MEMORY_BYTES), (64, 256 * MIB)])
def test_memory_is_more_than_the_caches_of_many_threads(threads: int, expected: int) -> None:
    assert memory_bytes(Target("llvm", "avx512", threads=threads, l2_bytes=2 * MIB)) == expected


def test_each_node_holds_what_its_threads_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = read_host(tree(tmp_path, alike(4, 1, 2, 2)), range(4))
    pinned: list[set[int]] = []
    monkeypatch.setattr(roofline, "read_host", lambda: host)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: pinned.append(cpus))
    seen: list[np.ndarray[Any, Any]] = []

    def best_s(_: object, arrays: list[np.ndarray[Any, Any]]) -> float:
        seen.append(arrays[0])
        return 1.0

    target = Target("llvm", "avx2", "haswell", threads=4)
    assert read_gb_s(target, 4 * MIB, 1, best_s) == pytest.approx(4 * MIB / 1e9)
    assert pinned == [{0}, {1}, {2}, {3}]
    assert (seen[0] == np.float32(1e-3)).all()
    read_gb_s(target, 4 * MIB, 40, best_s)  # of caches: memory does not matter
    assert len(pinned) == 4


def test_the_report_for_programs_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = read_host(tree(tmp_path, alike(4, 2, 2, 2)), range(4))
    monkeypatch.setattr(devices, "read_host", lambda: host)
    monkeypatch.setattr(devices, "measure_roofline", lambda _: Roofline(1.0, 1.0, 1.0, 1))
    monkeypatch.setattr(devices, "cuda_devices", list)
    cpu = devices.report_devices().data["cpu"]
    assert cpu["nodes"] == [[0, 1], [2, 3]]
    assert {"level": 2, "bytes": MIB, "cpus": [2, 3]} in cpu["caches"]
