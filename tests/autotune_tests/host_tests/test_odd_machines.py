"""Whatever the kernel's files hold, reading them gives a machine or nothing, and never an exception."""

import string
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.cli import main as cli
from autotune.host import process_limits
from autotune.host.devices import describe
from autotune.host.machine import host_target, mcpu_of, read_file, read_host
from autotune.measure.machine_lock import busy_share
from autotune.measure.remote.remote_host import described
from tuning_logs.filesystem import network_file_system

LINE = "36 35 98:0 {inside} {mount} rw,noatime master:1 - {kind} {source} rw,{options}"

WORDS = ["0", "-1", "max", "1e9", "99999999999999999999", "", "a", "0::/", "1:cpu:/a", "cpu"]

garbage = st.one_of(
    st.none(),
    st.text(max_size=60),
    st.text(alphabet=string.digits + "-,:./ \n\tKMGmax", max_size=60),
    st.lists(
        st.sampled_from(WORDS),
        max_size=6,
    ).map(" ".join),
)
"""Text of a file, or None where there is none."""

mounts = st.lists(
    st.builds(
        LINE.format,
        inside=st.sampled_from(["/", "/a", "", "/..", "x"]),
        mount=st.sampled_from(["/sys/fs/cgroup", "/", "", "/a\\040b", "rel"]),
        kind=st.sampled_from(["cgroup", "cgroup2", "ext4", ""]),
        source=st.sampled_from(["cgroup", "", "none", "a - b"]),
        options=st.sampled_from(["cpu", "cpu,cpuacct", "", "x"]),
    ),
    max_size=4,
).map("\n".join)

CGROUPS = ["0::/", "0::/a/b", "3:cpu,cpuacct:/a", "0::/../../x", "0::", "x", "4:cpu", "::::", "0::/a b"]

cgroups = st.lists(
    st.sampled_from(CGROUPS),
    max_size=4,
).map("\n".join)


@given(st.data())
def test_any_machine_can_be_read(data):
    files = {}

    def read(path):
        kind = {"/proc/self/mountinfo": mounts, "/proc/self/cgroup": cgroups}.get(path, garbage)
        if path not in files:
            files[path] = data.draw(st.one_of(kind, garbage))
        return files[path]

    architecture = data.draw(st.sampled_from(["", "x86_64", "aarch64", "riscv64", "s390x"]))
    host = read_host(read, data.draw(st.lists(st.integers(0, 300), max_size=4)), architecture)
    assert host.usable_threads >= 1
    assert host.quota is None or host.quota > 0
    assert min(host.l1_bytes, host.l2_bytes, host.l3_bytes) >= 0
    target = host_target(1, host=host)
    assert describe(target, host)
    assert isinstance(mcpu_of(host, target.isa), str)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["/proc/self/status", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat"]), garbage))
def test_any_device_can_be_read(files):
    assert described(files.get, 1, None, "x86_64").memory_bytes > 0


@given(garbage, garbage)
def test_any_text_in_place_of_the_time_of_the_cpus_is_no_error(before, after):
    assert isinstance(busy_share(before or "", after or ""), float)


def files_of(**more):
    files = {
        "/proc/self/cgroup": "0::/job",
        "/proc/self/mountinfo": LINE.format(inside="/", mount="/cg", kind="cgroup2", source="", options="x"),
        **more,
    }
    return files.get


def test_a_mount_with_an_empty_source_is_read():
    assert read_host(files_of(**{"/cg/job/cpu.max": "150000 100000"}), [0, 1]).quota == 1.5


def test_a_quota_of_one_and_a_half_cpus_is_one_thread():
    host = read_host(files_of(**{"/cg/job/cpu.max": "150000 100000"}), [0, 1])
    assert host.usable_threads == 1
    assert host_target(host=host).threads == 1


@pytest.mark.parametrize(
    ("text", "expected"), [("32K", 32768), ("32768", 32768), ("1M", 2**20), ("K", 0), ("", 0), ("1.5M", 0)]
)
def test_a_cache_size_without_a_unit_is_bytes(text, expected):
    cache = "/sys/devices/system/cpu/cpu0/cache/index0"
    files = {f"{cache}/level": "1", f"{cache}/type": "Data", f"{cache}/size": text}
    assert read_host(files.get, [0]).l1_bytes == expected


def test_a_file_that_is_no_text_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"\xff\xfe 1")
    assert read_file(str(tmp_path / "file")) == "\ufffd\ufffd 1"
    assert read_file(str(tmp_path)) is None


def test_without_proc_memory_is_not_limited(monkeypatch):
    monkeypatch.setattr(process_limits, "Path", lambda path: PurePosixPathWithout(path))
    process_limits.cap_memory(1)  # else this process could not go on


class PurePosixPathWithout(PurePosixPath):
    def read_text(self):
        raise FileNotFoundError(2, "No such file or directory")


def test_without_a_list_of_mounts_a_file_system_is_a_local_one(monkeypatch, tmp_path):
    def fail(**_):
        raise FileNotFoundError(2, "No such file or directory", "/proc/filesystems")

    monkeypatch.setattr("psutil.disk_partitions", fail)
    assert network_file_system(tmp_path) is None


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(30, "Read-only file system", "/x"), "the system refuses a file at /x (Read-only file system); check"),
        (PermissionError(13, "Permission denied", "/x"), "the system refuses a file at /x (Permission denied)"),
        (OSError(28, "No space left on device"), "the disk is full; what was measured is in the log"),
        (
            FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"),
            "there is no folder for temporary files",
        ),
        (OSError(24, "Too many open files"), "check its permissions and this process's limits"),
    ],
)
def test_what_the_system_refuses_is_one_line(monkeypatch, capsys, error, line):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(cli, "app", fail)
    assert cli.main(["devices"]) == 1
    told = capsys.readouterr().err
    assert line in told
    assert told.count("\n") == 1
