"""Addresses of devices, their compiled code, and sessions that end."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm

from autotune.measure.messages import DeviceLost
from autotune.measure.remote.rpc_session import Address, DeviceSession, compile_device_code, parse_address
from schedules.vocabulary.errors import UsageError


def test_an_address_is_written_as_it_is_read() -> None:
    assert parse_address("host:9190:board") == Address("host", 9190, "board")
    assert str(parse_address("host:9190:a:b")) == "host:9190:a:b"


@pytest.mark.parametrize("text", ["", "board", "host:9190", "host:9190:", "host:many:board", ":1:k", "h:70000:k"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT:KEY"):
        parse_address(text)


def test_device_code_is_a_library_or_an_object(tmp_path: Path) -> None:
    library = tvm.runtime.load_module(str(compile_device_code(tmp_path / "probe.so", timer=False)))
    for name in ("tune_read", "tune_limit", "tune_guard", "tune_lock", "tune_remove", "tune_fill"):
        assert library[name] is not None
    assert compile_device_code(tmp_path / "timer.o", timer=True).read_bytes().startswith(b"\x7fELF")


class Ended(DeviceSession):
    """A session whose process may be gone."""

    def __init__(self, alive: bool) -> None:
        self._note = "/tmp/tune-1.note"
        self._answers = alive

    def call(self, name: str, *args: object) -> object:
        if not self._answers:
            raise RuntimeError("socket closed")
        return 1


def test_a_failure_is_the_action_s_own_unless_the_session_is_gone() -> None:
    def fail() -> None:
        raise ValueError("wrong shape")

    def break_off() -> None:
        raise RuntimeError("RPC: connection reset")

    with pytest.raises(ValueError, match="wrong shape"):
        Ended(alive=True).attempt(fail)
    with pytest.raises(RuntimeError, match="connection reset"):
        Ended(alive=True).attempt(break_off)
    with pytest.raises(DeviceLost, match="RuntimeError: RPC: connection reset") as caught:
        Ended(alive=False).attempt(break_off)
    assert caught.value.note == "/tmp/tune-1.note"
