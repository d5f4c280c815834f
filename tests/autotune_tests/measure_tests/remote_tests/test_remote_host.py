"""What a device is, from its kernel's files, and what is said where it does not answer."""

from __future__ import annotations

import pytest

from autotune.host.machine import host_target, read_file
from autotune.host.worker_pool import Lost
from autotune.measure.remote import remote_host
from autotune.measure.remote.remote_host import described, look_at
from autotune.measure.remote.rpc_session import Address
from schedules.vocabulary.errors import MeasureError

ADDRESS = Address("127.0.0.1", 9190, "board")


def test_the_files_of_another_machine() -> None:
    files = {
        "/proc/cpuinfo": "processor: 0\nvendor_id: AuthenticAMD\nmodel name: A CPU\nflags: avx2 fma bmi1 bmi2 f16c\n",
        "/proc/meminfo": "MemTotal: 2048 kB\n",
        "/proc/self/status": "Cpus_allowed_list:\t0-2,5\n",
        "/proc/sys/kernel/hostname": "board-7",
    }
    host = described(files.get, None, None)
    assert (host.name, host.cpu, host.memory_bytes, host.cores) == ("board-7", "A CPU", 2 << 20, (0, 1, 2, 5))
    assert (host.target.isa, host.target.threads) == ("avx2", 4)


def test_this_machine_s_files_describe_this_machine() -> None:
    assert described(read_file, None, None).target == host_target()


def test_a_device_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_host, "run_alone", lambda *_: Lost("timeout", "not done within 85 s", 85.0))
    with pytest.raises(MeasureError, match=r"device 127.0.0.1:9190:board could not be read: not done within 85 s"):
        look_at(ADDRESS)
