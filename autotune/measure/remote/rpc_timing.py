"""Checking and timing on an RPC device: ``timing.Bench`` with its kernels, tensors and clock over there.

The rules are the same as for this machine (what is cold, what is warm, which runs count), and so is the code that
decides; ``device.cc`` does one run. Inputs are made here and sent once per session.
"""

from __future__ import annotations

import math
import secrets
import signal
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.script import from_source

from autotune.host.compilers import run_binutils
from autotune.host.fork_server import Refused
from autotune.host.pages import KERNEL_ALIGNMENT
from autotune.host.worker_pool import TRIES
from autotune.measure.kernel_builder import Builder, object_of
from autotune.measure.kernel_handler import CpuHandler, KernelJob
from autotune.measure.kernel_timing import CpuBench, Loaded, Prepared
from autotune.measure.measurer import symbol_of
from autotune.measure.messages import BuildJob, Built, DeviceLost, ReferenceJob, Timed, TimedAll, TimeJob
from autotune.measure.output_check import FENCE, FENCE_BYTES, Array, aligned, with_fences
from autotune.measure.remote.remote_host import described
from autotune.measure.remote.rpc_session import SLACK_S, DeviceSession, compile_device_code, parse_address
from autotune.measure.timed_memory import PRODUCER, Kernel
from schedules.task import Task
from schedules.vocabulary.errors import MeasureError, UsageError

PRODUCER_SYMBOL = "tune_producer_of_rows"


@dataclass(frozen=True)
class RemoteKernel:
    """A kernel on the device: to be checked by calling it, to be timed by ``run``."""

    call: Kernel
    run: Kernel

    def __call__(self, *tensors: Any) -> None:
        """Run it once."""
        self.call(*tensors)


@dataclass(frozen=True)
class Copy:
    """An ``aligned`` array and its copy on the device.

    Attributes:
        whole: the bytes that ``with_fences`` gives. Only this is copied: TVM's copies ignore where a view begins.
        view: the array in it.
    """

    array: Array
    whole: tvm.runtime.Tensor
    view: tvm.runtime.Tensor

    def sides(self) -> list[tvm.runtime.Tensor]:
        """The fences."""
        starts = (0, FENCE_BYTES + self.array.nbytes)
        return [self.whole._create_view((FENCE_BYTES,), "uint8", start) for start in starts]


class RemoteBench(CpuBench):
    """Runs libraries on an RPC device.

    Raises:
        MeasureError: if the device cannot be reached.
    """

    fatal = (DeviceLost,)

    def _open(self) -> None:
        folder = Path(self._settings.directory) / f"device-{secrets.token_hex(4)}"
        folder.mkdir()
        self._folder = folder
        self._runs = 0
        self._limits = (0.0, 0)
        self._remote: dict[int, Copy] = {}
        self._arenas: dict[str, tvm.runtime.Tensor] = {}
        self._producer_library = folder / "producer.so"
        builder = Builder(self._settings.target, self._lowering)
        builder.compile(from_source(PRODUCER), PRODUCER_SYMBOL, str(self._producer_library))
        self._session = DeviceSession(parse_address(self._settings.device), folder)
        self._timer = compile_device_code(folder / "timer.o", True, self._session.architecture)
        self.host = self._checked_host()
        self._block_there = self._session.tensor(self._block)
        self._session.pin(self._settings.target.threads, self._settings.cores)

    def _checked_host(self) -> str:
        """The device's name; behind one key there may be several, and the next session may be another's."""
        target = self._settings.target
        here = described(self._session.read_text, target.threads, target.isa, self._session.architecture)
        if here.target.fingerprint != target.fingerprint:
            raise MeasureError(
                f"device {here.name} of {self._settings.device} is {here.target.fingerprint} and this run is for "
                f"{target.fingerprint}; give machines that differ keys of their own"
            )
        return here.name

    @property
    def old(self) -> bool:
        """Whether the session should be replaced before the next job."""
        return self._session.old

    def last_note(self, note: str) -> str:
        """See ``DeviceSession.last_note``."""
        return self._session.last_note(note)

    def close(self) -> None:
        """Leave the device to others."""
        self._session.close()

    def within(self, job: ReferenceJob | TimeJob) -> TimedAll:
        """Do one job within its limits, alone on that machine."""
        self._limits = (max(1.0, job.timeout_s - SLACK_S), job.memory_bytes or 0)
        reply = self._session.attempt(lambda: self.answer(job))
        self._session.attempt(self._rest)
        return replace(reply, host=self.host)

    def _rest(self) -> None:
        self._session.limit(0.0, 0)
        self._session.release_lock()

    def _load(self, library: str, task: Task) -> Kernel:
        """Link the kernel with what times it, send and load that."""
        linked = self._folder / "linked.so"
        symbol = symbol_of(task.key)
        ours = (f"tune_kernel=__tvm_ffi_{symbol}", f"tune_producer=__tvm_ffi_{PRODUCER_SYMBOL}")
        objects = (object_of(library), object_of(str(self._producer_library)), str(self._timer))
        arguments = ["-shared", *(f"--defsym={name}" for name in ours), "-o", str(linked), *objects]
        run_binutils("ld", arguments, self._session.architecture)
        module = self._session.load(linked)
        return RemoteKernel(module["tune_call"], module["tune_run"])

    def _copy(self, array: Array) -> Copy:
        """The array on the device, sent at the first call."""
        if id(array) not in self._remote:
            whole = self._session.tensor(with_fences(array))
            self._remote[id(array)] = Copy(array, whole, whole._create_view(array.shape, str(array.dtype), FENCE_BYTES))
        return self._remote[id(array)]

    def _there(self, array: Array) -> tvm.runtime.Tensor:
        return self._copy(array).view

    def _is_within(self, prepared: list[Prepared]) -> bool:
        arrays = {id(array): array for data in prepared for array in data.fenced()}
        sides = chain.from_iterable(self._copy(array).sides() for array in arrays.values())
        return bool(self._session.attempt(lambda: self._session.call("tune_is_fenced", FENCE, *sides)))

    def _keep(self, task: Task, prepared: list[Prepared]) -> None:
        super()._keep(task, prepared)
        alive = {
            id(array)
            for one in chain.from_iterable(self._tasks.values())
            for array in (*one.inputs, *one.live, *one.edged, one.output, *one.repacked.values())
        }
        self._remote = {key: value for key, value in self._remote.items() if key in alive}
        for array in prepared[0].live:  # sent now, not while a candidate's time limit runs
            self._there(array)

    def _call(self, loaded: Loaded, inputs: list[Array], output: Array) -> None:
        def call() -> None:
            arrays = [self._there(loaded.weights.get(index, array)) for index, array in enumerate(inputs)]
            result = self._copy(output)
            result.whole.copyfrom(with_fences(output))  # the poison
            self._session.take_lock()
            self._session.limit(*self._limits)
            loaded.kernel(*arrays, result.view)
            with_fences(output)[...] = result.whole.numpy()  # with what an earlier run left of the fences

        self._session.attempt(call)

    def _run(self, loaded: Loaded, prepared: Prepared) -> float:
        """Seconds of one run."""
        assert isinstance(loaded.kernel, RemoteKernel)
        arrays = [loaded.weights.get(index, array) for index, array in enumerate(prepared.live)]
        plan = [self._role(index, prepared) for index in range(len(arrays))] + ["o" if prepared.output.size else "k"]
        cold = sum(_padded(array) for array, role in zip(arrays, plan, strict=False) if role == "c")
        arena = self._arena_there("c", max(cold, self._arena.least_bytes))
        outputs = self._arena_there("o", max(_padded(prepared.output), self._outputs.least_bytes))
        self._runs += 1
        tensors = [self._there(array) for array in (*arrays, prepared.output)]
        roles = self._there(_roles("".join(plan)))
        return float(loaded.kernel.run(roles, self._runs, arena, outputs, *tensors))

    def _role(self, index: int, prepared: Prepared) -> str:
        if index in prepared.cold:
            return "c"
        return "k" if prepared.live[index] is prepared.inputs[index] else "w"

    def _arena_there(self, name: str, size: int) -> tvm.runtime.Tensor:
        """An arena of at least ``size`` bytes, filled with ordinary numbers."""
        known = self._arenas.get(name)
        if known is None or 4 * math.prod(known.shape) < size:
            known = self._session.empty((-(-size // 4),), np.dtype("float32"))
            self._session.call("tune_fill", self._block_there, known)
            self._arenas[name] = known
        return known


_ROLES: dict[str, Array] = {}


def _roles(plan: str) -> Array:
    """``plan`` as bytes; the same array for the same plan."""
    if plan not in _ROLES:
        _ROLES[plan] = aligned((len(plan) + 1,), np.dtype("uint8"))
        _ROLES[plan][...] = bytearray(plan.encode() + b"\0")
    return _ROLES[plan]


def _padded(array: Array) -> int:
    return -(-array.nbytes // KERNEL_ALIGNMENT) * KERNEL_ALIGNMENT


class RemoteHandler(CpuHandler):
    """Builds here and runs on the device. A session that ends is the failure of the candidate that it was running."""

    _bench: RemoteBench | None

    def answer(self, job: KernelJob) -> Built | TimedAll | Refused:
        """Do one job; ``Refused`` if nothing can be built here, or no device can be reached."""
        if isinstance(job, BuildJob):
            return self._built(job)
        try:
            return self._run_there(job)
        except (MeasureError, UsageError) as error:
            return Refused(error)

    def rest(self) -> None:
        """Leave the device to others."""
        if self._bench is not None:
            self._bench.close()
            self._bench = None

    def _run_there(self, job: ReferenceJob | TimeJob) -> TimedAll:
        timed = Timed(error="worker_died")
        for _ in range(TRIES):
            bench = self._ready_bench()
            try:
                return bench.within(job)
            except DeviceLost as lost:
                self._bench = None
                note = self._ready_bench().last_note(lost.note)
                timed = died(note, job.timeout_s - SLACK_S, str(lost))
                if timed.error != "worker_died":
                    break
        count = len(job.libraries) if isinstance(job, TimeJob) else 1
        return TimedAll((timed,) * count)

    def _ready_bench(self) -> RemoteBench:
        if self._bench is not None and self._bench.old:
            self.rest()
        if self._bench is None:
            self._bench = RemoteBench(self._settings, self._lowering, self._producer)
        return self._bench


def died(note: str, limit_s: float, cause: str) -> Timed:
    """Return the result that a session's death means for the candidate that it was running.

    Args:
        note: what ``DeviceSession.last_note`` found.
        limit_s: of the job.
        cause: how we learnt of it.
    """
    if note == "memory":
        return Timed(error="out_of_memory", message="std::bad_alloc on the device")
    number = int(note) if note.isdigit() else 0
    if number == signal.SIGALRM:
        return Timed(run_s=limit_s, error="timeout", message=f"not done within {limit_s:g} s on the device")
    known = number in {member.value for member in signal.Signals}
    name = signal.Signals(number).name if known else f"an unknown cause ({cause})"
    return Timed(error="worker_died", message=f"the device's process died of {name}")
