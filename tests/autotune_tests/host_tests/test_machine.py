"""Hosts are given as the texts of kernel files, so that machines we do not have are tested too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tvm.target import codegen

from autotune.host.devices import describe
from autotune.host.machine import Host, Reader, core_groups, host_target, read_host, thread_cpus
from schedules.processors import AMX, ARM_MATRIX, AVX2, ICE_LAKE, INSTRUCTION_SETS
from schedules.vocabulary.errors import UsageError

HOST = Host(
    model="Example CPU",
    architecture="x86_64",
    vendor="GenuineIntel",
    flags=AMX | {"sha_ni"},
    online=16,
    allowed=tuple(range(8)),
    cores=(0, 2, 4, 6),
    quota=None,
    l1_bytes=48 * 1024,
    l2_bytes=2 * 1024 * 1024,
    l3_bytes=32 * 1024 * 1024,
)


def reader(files: dict[str, str]) -> Reader:
    """Reads ``files``, whose paths are relative to the root."""
    return lambda path: files.get(path.lstrip("/"))


def core(cpu: int, core_id: int, package: int = 0) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
    return {f"{folder}/core_id": str(core_id), f"{folder}/physical_package_id": str(package)}


def cache(cpu: int, index: int, level: int, kind: str, size: str) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
    return {f"{folder}/level": str(level), f"{folder}/type": kind, f"{folder}/size": size}


V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw"
V1_MOUNT = "32 31 0:29 {inside} /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct"


def test_this_machine_gives_a_target_that_llvm_knows() -> None:
    target = host_target()
    assert target.threads >= 1
    assert not target.mcpu or codegen.llvm_is_valid_cpu(target.mcpu, codegen.llvm_get_system_triple())
    assert len(describe(target)) == 4


@pytest.mark.parametrize(
    ("flags", "vendor", "isa", "mcpu"),
    [
        (AMX, "GenuineIntel", "amx", "sapphirerapids"),
        (AMX | {"amx_fp16"}, "GenuineIntel", "amx", "graniterapids"),
        (AMX - {"amx_tile"} | {"sha_ni"}, "GenuineIntel", "avx512", "icelake-server"),
        (ICE_LAKE - {"gfni"}, "GenuineIntel", "avx512", "cascadelake"),
        (ICE_LAKE | {"avx512_bf16", "clzero"}, "AuthenticAMD", "avx512", "znver4"),
        (ICE_LAKE | {"avx512_bf16", "clzero", "avx_vnni", "movdiri", "movdir64b"}, "AuthenticAMD", "avx512", "znver5"),
        (AVX2 | {"clzero", "clwb", "sha_ni"}, "AuthenticAMD", "avx2", "znver2"),
        (AVX2, "GenuineIntel", "avx2", "haswell"),
        (AVX2 - {"fma"}, "GenuineIntel", "generic", ""),
        (AVX2 | {"avx512f"}, "GenuineIntel", "avx2", "haswell"),
    ],
)
def test_level_and_name_come_from_the_flags(flags: frozenset[str], vendor: str, isa: str, mcpu: str) -> None:
    target = host_target(host=replace(HOST, flags=flags, vendor=vendor))
    assert (target.isa, target.mcpu) == (isa, mcpu)


ARM_INFO = "processor : 0\nBogoMIPS : 2000.00\nFeatures : {}\nCPU implementer : 0x41\n"


def test_other_architectures_are_known_by_the_words_of_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    arm = read_host(reader({"proc/cpuinfo": ARM_INFO.format(" ".join(sorted(ARM_MATRIX | {"sve2", "flagm2"})))}), [0])
    target = host_target(host=arm)
    assert (target.isa, target.mcpu, target.vector_bytes, target.vector_registers) == ("neon", "neoverse-n2", 16, 32)
    assert host_target(host=replace(arm, flags=frozenset({"asimd"}))).mcpu == "cortex-a72"


def test_a_device_of_another_architecture_is_not_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    info = "processor : 0\nisa : rv64imafdcv_zicsr_zvl256b\nmmu : sv39\n"
    board = read_host(reader({"proc/cpuinfo": info}), [0], "riscv64")
    target = host_target(host=board)
    assert (board.model, board.vendor, board.isas[0]) == ("riscv64", "", "rvv256")
    assert (target.isa, target.mcpu, target.lanes()) == ("rvv256", "", 8)
    assert read_host(reader({}), [0], "aarch64").flags == frozenset()


def test_a_lower_level_can_be_forced() -> None:
    target = host_target(isa="avx2", host=HOST)
    assert (target.isa, target.mcpu, target.lanes(), target.vector_registers) == ("avx2", "haswell", 8, 16)
    assert target.fingerprint != host_target(host=HOST).fingerprint


def test_every_level_is_one_that_targets_know() -> None:
    assert set(HOST.isas) <= set(INSTRUCTION_SETS)
    assert replace(HOST, architecture="aarch64", flags=frozenset()).isas == ("neon", "generic")


def test_threads_default_to_physical_cores_and_may_use_siblings() -> None:
    assert host_target(host=HOST).threads == 4
    assert host_target(threads=6, host=HOST).threads == 6
    assert thread_cpus(3, HOST) == (0, 2, 4)
    assert thread_cpus(6, HOST) == (0, 1, 2, 3, 4, 6)


@pytest.mark.parametrize(("quota", "threads"), [(2.5, 2), (0.5, 1), (4.0, 4), (64.0, 4)])
def test_a_quota_limits_the_default(quota: float, threads: int) -> None:
    host = replace(HOST, quota=quota)
    assert host_target(host=host).threads == threads
    assert any(f"quota of {quota:g} CPUs" in line for line in describe(host_target(host=host), host))


@pytest.mark.parametrize("threads", [0, -1, 9])
def test_threads_that_this_process_does_not_have_are_refused(threads: int) -> None:
    with pytest.raises(UsageError, match=f"--threads {threads}: .*8 CPUs; give 1 to 8"):
        host_target(threads=threads, host=HOST)


@pytest.mark.parametrize("isa", ["neon", "sse9", ""])
def test_a_level_that_cannot_run_here_is_refused(isa: str) -> None:
    with pytest.raises(UsageError, match="this CPU has amx, avx512, avx2, generic"):
        host_target(isa=isa, host=HOST)


def test_one_thread_per_physical_core_and_package() -> None:
    files = core(0, 0) | core(1, 0) | core(2, 1) | core(3, 0, package=1)
    host = read_host(reader(files), allowed=(1, 2, 3))
    assert (host.allowed, host.cores) == ((1, 2, 3), (1, 2, 3))
    assert read_host(reader(files), allowed=(0, 1, 2)).cores == (0, 2)


def sockets(nodes: int, cores: int) -> Host:
    """A machine of so many sockets with two logical CPUs per core; the second ones have the higher numbers."""
    every = nodes * cores
    files = {"sys/devices/system/node/online": f"0-{nodes - 1}" if nodes > 1 else "0"}
    for node in range(nodes):
        first = node * cores
        lists = (f"{start}-{start + cores - 1}" for start in (first, first + every))
        files[f"sys/devices/system/node/node{node}/cpulist"] = ",".join(lists)
        for cpu in range(first, first + cores):
            files |= core(cpu, cpu - first, node) | core(cpu + every, cpu - first, node)
    return read_host(reader(files), allowed=range(2 * every))


def test_streams_stay_on_one_node_of_memory_and_take_turns_among_the_nodes() -> None:
    host = sockets(2, 32)
    assert [len(node) for node in host.nodes] == [64, 64]
    groups = core_groups(
        20, 3, host
    )  # 32 is no multiple of 3: dealt out in order, the eleventh would lie on both nodes
    assert len({cpu for group in groups for cpu in group}) == 60
    assert all(any(set(group) <= node for node in host.nodes) for group in groups)
    assert [group[0] // 32 for group in groups[:4]] == [0, 1, 0, 1]
    assert core_groups(2, 2, sockets(1, 8)) == [[0, 1], [2, 3]]


def test_a_group_larger_than_a_node_takes_what_the_others_have_left() -> None:
    assert core_groups(1, 6, sockets(2, 4)) == [[0, 1, 2, 3, 4, 5]]
    assert sorted(cpu for group in core_groups(3, 5, sockets(2, 8)) for cpu in group) == [*range(15)]


def test_streams_share_cpus_only_where_there_are_too_few() -> None:
    assert core_groups(2, 3, HOST) == [[0, 1, 2], [3, 4, 6]]
    assert core_groups(3, 4, replace(HOST, allowed=(0, 1), cores=(0,))) == [[0, 1, 0, 1]] * 3


def test_unknown_topology_takes_every_cpu() -> None:
    host = read_host(reader({}), allowed=(0, 5))
    assert (host.cores, host.quota, host.l2_bytes) == ((0, 5), None, 0)
    assert host_target(host=host).l2_bytes > 0


def test_data_caches_are_read() -> None:
    files = cache(4, 0, 1, "Data", "48K") | cache(4, 1, 1, "Instruction", "64K")
    files |= cache(4, 2, 2, "Unified", "2048K") | cache(4, 3, 3, "Unified", "32M")
    host = read_host(reader(files), allowed=(4,))
    assert (host.l1_bytes, host.l2_bytes, host.l3_bytes) == (48 * 1024, 2 * 2**20, 32 * 2**20)


def test_flags_are_the_kernels() -> None:
    text = "processor : 0\nvendor_id : Example\nmodel name : A CPU\nflags : fma avx2\n\nprocessor : 1\nflags : other"
    host = read_host(reader({"proc/cpuinfo": text}), allowed=(0,))
    assert (host.model, host.vendor, host.flags) == ("A CPU", "Example", {"fma", "avx2"})


def test_the_tightest_cgroup_v2_limit_counts() -> None:
    files = {
        "proc/self/cgroup": "0::/user/job",
        "proc/self/mountinfo": V2_MOUNT,
        "sys/fs/cgroup/user/job/cpu.max": "max 100000",
        "sys/fs/cgroup/user/cpu.max": "250000 100000",
        "sys/fs/cgroup/cpu.max": "800000 100000",
    }
    assert read_host(reader(files), allowed=(0,)).quota == 2.5


@pytest.mark.parametrize(("inside", "path", "folder"), [("/", "/job", "job/"), ("/docker/1", "/docker/1", "")])
def test_cgroup_v1_limits(inside: str, path: str, folder: str) -> None:
    files = {
        "proc/self/cgroup": f"2:cpu,cpuacct:{path}\n1:name=systemd:/elsewhere",
        "proc/self/mountinfo": V1_MOUNT.format(inside=inside),
        f"sys/fs/cgroup/cpu/{folder}cpu.cfs_quota_us": "150000",
        f"sys/fs/cgroup/cpu/{folder}cpu.cfs_period_us": "100000",
    }
    assert read_host(reader(files), allowed=(0,)).quota == 1.5


def test_a_negative_v1_quota_is_no_limit() -> None:
    files = {
        "proc/self/cgroup": "2:cpu:/",
        "proc/self/mountinfo": V1_MOUNT.format(inside="/"),
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    assert read_host(reader(files), allowed=(0,)).quota is None
