"""An RPC device: a machine with TVM's stock RPC server, which we reach through TVM's tracker.

The device needs nothing of ours. What has to run beside a kernel there (reading the machine's files, limits, timing)
is ``device.cc``, compiled here and linked into every library that is sent. One session is one process on the device;
whatever kills it ends that process with status 0 and leaves a note that says what it was, because the server of TVM
0.27 stops listening when a session ends in any other way.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import rpc
from tvm_ffi import libinfo

from autotune.host.compilers import compile_with
from autotune.measure.machine_lock import await_idle
from autotune.measure.messages import DeviceLost
from schedules.vocabulary.errors import MeasureError, UsageError, first_line, named_last_line

SESSION_S = 300
"""A session's process on the device is ended by the server after this long: a client that vanished frees the device."""

RENEW_S = 30.0
"""Between jobs a session older than this is replaced, so that no job is met by that end, and others get a turn."""

CONNECT_S = 10.0
FREE_S = 45.0
"""How long to wait for the tracker, and for a device that others use."""

SLACK_S = 120.0
"""On top of a job's limit, which the device itself keeps: waiting for the device and its turn, and sending inputs."""

NOTE, LOCK = "/tmp/tune-{}.note", "/tmp/tune-turn"  # noqa: S108 - on the device; opened without following links

READ_BYTES = 1 << 18
"""Bytes of a file on a device: the CPUs of a large machine need that many."""

STAT_BYTES = 512
"""Bytes of ``/proc/stat``: its first line, for all CPUs together, is shorter."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Address:
    """The address of a tracker, and the key that its devices are known under."""

    host: str
    port: int
    key: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}:{self.key}"


def parse_address(text: str) -> Address:
    """``HOST:PORT:KEY``.

    Raises:
        UsageError: if it is not that.
    """
    host, _, rest = text.partition(":")
    port, _, key = rest.partition(":")
    if not host or not key or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"--rpc {text}: not HOST:PORT:KEY; write for example --rpc 127.0.0.1:9190:board")
    return Address(host, int(port), key)


def compile_device_code(out: Path, timer: bool, architecture: str = "") -> Path:
    """``device.cc`` as an object that is linked to a kernel (``timer``), or as a library of its own.

    Args:
        architecture: of the device; empty for this machine's.

    Raises:
        InstallError: if there is no compiler for it.
    """
    include = [f"-I{libinfo.find_include_path()}", f"-I{libinfo.find_dlpack_include_path()}"]
    source = Path(__file__).with_name("device.cc")
    kind = ["-DTUNE_TIMER", "-c"] if timer else ["-shared"]
    compile_with(["-O2", "-fPIC", *kind, *include, "-o", str(out), str(source)], architecture)
    return out


def tracked(address: Address) -> tuple[rpc.TrackerSession, int]:
    """A connection to the tracker, and how many devices it has under the address's key.

    Raises:
        MeasureError: if the tracker does not answer or has no such device.
    """
    where = f"{address.host}:{address.port}"
    try:
        with socket.create_connection((address.host, address.port), CONNECT_S):
            pass  # TVM's own client waits a minute for a tracker that is not there
        tracker = rpc.connect_tracker(address.host, address.port)
        tracker._sock.settimeout(FREE_S)
        keys = [info["key"].removeprefix("server:") for info in tracker.summary()["server_info"]]
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise MeasureError(
            f"the RPC tracker at {where} cannot be reached ({first_line(error, 200)}); "
            "start it: python -m tvm.exec.rpc_tracker --host 127.0.0.1 --port 9190"
        ) from error
    if address.key not in keys:
        known = ", ".join(sorted(set(keys))) or "none at all"
        raise MeasureError(
            f"the RPC tracker at {where} has no device {address.key!r} (it has {known}); start one: "
            f"python -m tvm.exec.rpc_server --host 127.0.0.1 --tracker {where} --key {address.key}"
        )
    return tracker, keys.count(address.key)


def request(address: Address) -> rpc.RPCSession:
    """A session with a free device.

    Raises:
        MeasureError: as ``tracked``, or if no device is free in time.
    """
    tracker, _ = tracked(address)
    where = f"{address.host}:{address.port}"
    try:
        return tracker.request(address.key, session_timeout=SESSION_S, max_retry=1)
    except (OSError, RuntimeError) as error:
        raise MeasureError(
            f"no device {address.key!r} of the RPC tracker at {where} answered within {FREE_S:.0f} s "
            f"({first_line(error, 200)}); look at: python -m tvm.exec.query_rpc_tracker --host {address.host} "
            f"--port {address.port}"
        ) from error


def _architecture(session: rpc.RPCSession) -> str:
    """Return the device's architecture as its LLVM names it; empty where only TVM's runtime is there."""
    try:
        return str(session.get_function("target.llvm_get_system_triple")()).partition("-")[0]
    except (RuntimeError, AttributeError, ValueError):
        return ""


class DeviceSession:
    """One process on a device.

    Args:
        address: of the tracker.
        folder: for what is compiled for the device.

    Attributes:
        architecture: of the device, as LLVM names it; empty where the server has no compiler that could say it, and
            this machine's is taken.

    Raises:
        MeasureError: if the tracker does not answer, or has no such device free; in one line that says which.
        InstallError: if there is no compiler for the device's architecture.
    """

    def __init__(self, address: Address, folder: Path) -> None:
        self._address = address
        self._session = request(address)
        self._began_s = time.monotonic()
        self.device = self._session.cpu(0)
        self.architecture = _architecture(self._session)
        probe = compile_device_code(folder / "probe.so", False, self.architecture)
        self._note = NOTE.format(secrets.token_hex(8))
        self._count = 0
        self._shared = False
        self._mine = False
        self._buffers: dict[int, tvm.runtime.Tensor] = {}
        try:
            self._functions = self._load(probe)
        except (RuntimeError, OSError, ValueError) as error:  # what TVM makes of the server's error
            raise MeasureError(
                f"device {address} cannot load code made here for {self.architecture or 'this architecture'} "
                f"({named_last_line(error)}); it must have the same apache-tvm"
            ) from error
        self.call("tune_guard", self._text(self._note))

    @property
    def old(self) -> bool:
        """Whether it is time for a new one."""
        return time.monotonic() - self._began_s > RENEW_S

    def tensor(self, array: NDArray[Any]) -> tvm.runtime.Tensor:
        """A copy of ``array`` on the device."""
        return self.empty(array.shape, array.dtype).copyfrom(array)

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> tvm.runtime.Tensor:
        """Memory on the device."""
        return tvm.runtime.empty(tuple(shape), str(dtype), self.device)

    def call(self, name: str, *args: Any) -> Any:
        """A function of ``device.cc``."""
        return self._functions[name](*args)

    def load(self, library: Path) -> tvm.runtime.Module:
        """Send and load a library."""
        return self.attempt(lambda: self._load(library))

    def _load(self, library: Path) -> tvm.runtime.Module:
        self._count += 1
        name = f"{self._count}.so"
        self._session.upload(str(library), name)
        return self._session.load_module(name)

    def pin(self, threads: int, cores: Sequence[int]) -> None:
        """Kernels of this session run on ``threads`` threads, one per core of ``cores``."""
        listed = self._session.get_function("ffi.Array")(*(str(core) for core in cores))
        self._session.get_function("runtime.config_threadpool")(-2, threads, listed)

    def read(self, path: str, most: int = READ_BYTES) -> bytes | None:
        """The first ``most`` bytes of a file on the device; None where there is none."""
        if most not in self._buffers:
            self._buffers[most] = self.empty((most,), np.dtype("uint8"))
        count = int(self.call("tune_read", self._text(path), self._buffers[most]))
        return None if count < 0 else bytes(self._buffers[most].numpy()[:count])

    def read_text(self, path: str) -> str | None:
        """A file's text, as a ``Reader``."""
        data = self.read(path)
        return None if data is None else data.decode(errors="replace").strip()

    def limit(self, seconds: float, grow_bytes: int) -> None:
        """Let the process run for ``seconds`` (0: for ever) and grow by ``grow_bytes`` (0: as it likes)."""
        self.call("tune_limit", int(-(-seconds // 1)), grow_bytes)

    def take_lock(self) -> None:
        """Wait until nothing else is timed on that machine by anyone who takes turns; at once while the turn is ours.

        Where others were met before, a turn begins when the CPUs are idle.
        """
        if self._mine:
            return
        path, deadline = self._text(LOCK), time.monotonic() + SLACK_S / 2
        while not (mine := bool(self.call("tune_lock", path, 1))) and time.monotonic() < deadline:
            self._shared = True
            time.sleep(0.002)
        self._mine = mine
        if self._shared:
            await_idle(lambda: (self.read("/proc/stat", STAT_BYTES) or b"").decode())

    def release_lock(self) -> None:
        """Let others."""
        self._mine = False
        self.call("tune_lock", self._text(LOCK), 0)

    def attempt(self, action: Callable[[], Result]) -> Result:
        """``action``, which uses this session.

        Raises:
            DeviceLost: if it failed because the session is gone; anything else as it comes.
        """
        try:
            return action()
        except (RuntimeError, OSError) as error:
            if self._alive():
                raise
            raise DeviceLost(self._note, named_last_line(error)) from error

    def close(self) -> None:
        """Let the process end, and take its note away."""
        if self._alive():
            self.call("tune_remove", self._text(self._note))
        del self._functions, self._session

    def last_note(self, note: str) -> str:
        """Return the note that the process of a lost session left on this device: a signal's number, or ``memory``."""
        text = self.read(note) or b""
        self.call("tune_remove", self._text(note))
        return text.decode(errors="replace")

    def _alive(self) -> bool:
        try:
            self.call("tune_limit", 0, 0)
        except (RuntimeError, OSError):
            return False
        return True

    def _text(self, text: str) -> tvm.runtime.Tensor:
        return self.tensor(np.frombuffer(text.encode() + b"\0", np.uint8))
