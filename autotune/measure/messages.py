"""Jobs of the kernel workers and their answers. All of it is plain data that pickles."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.host.fork_server import Job
from autotune.measure.evaluator import (
    Evaluator,
)
from schedules.config import Config
from schedules.target import Target
from schedules.task import Task
from tuning_logs.measurement import ErrorKind


@dataclass(frozen=True)
class Settings:
    """The arguments that a kernel handler is constructed with.

    Attributes:
        target: what to build for; its ``threads`` is the size of the pool that kernels run on.
        cores: the cores those threads are pinned to.
        seed: of the inputs.
        lowering: the module that applies configs to programs; ``schedules.lower``, but for tests.
        directory: where libraries, programs, references and the workers' logs lie.
        device: what runs the kernels: ``cuda:1``, or HOST:PORT:KEY of an RPC tracker; empty for this machine.
        cache: folder of code that was compiled before; empty to compile everything.
    """

    target: Target
    cores: tuple[int, ...]
    seed: int
    lowering: str
    directory: str
    device: str = ""
    cache: str = ""


@dataclass(frozen=True)
class BuildJob(Job):
    """Lower and compile one config.

    Attributes:
        program: file that holds the program.
        library: file to write; the object file beside it keeps the function for linking elsewhere.
        symbol: the function's name in both.
    """

    program: str
    config: Config
    library: str
    symbol: str


@dataclass(frozen=True)
class Built:
    """A library on disk, or why there is none; ``trace`` as in ``Measurement``."""

    compile_s: float
    code_hash: str = ""
    error: ErrorKind | None = None
    message: str = ""
    trace: str = ""


@dataclass(frozen=True)
class ReferenceJob(Job):
    """Run the untuned library, keep its output, time it.

    Attributes:
        task: whose inputs to make.
        library: the untuned build.
        output: .npy file to write.
        cold_bytes: as of ``TimeJob``.
    """

    task: Task
    library: str
    output: str
    evaluator: Evaluator
    cold_bytes: int


@dataclass(frozen=True)
class Reference:
    """A task's right output: where it lies, and whether its inputs had to be positive."""

    output: str
    positive: bool


@dataclass(frozen=True)
class TimeJob(Job):
    """Check and time libraries of one task; more than one are interleaved, run by run.

    Attributes:
        configs: what each library was built from.
        program: file that holds the program; with the config it says how weights must be packed.
        reference: what their output must be.
        incumbent_s: latency to race against.
        control: the incumbent's library and config, timed in turn with a single contender.
        cold_bytes: bytes of other data that are read between two runs, so that the weights have left the caches.
    """

    task: Task
    libraries: tuple[str, ...]
    configs: tuple[Config, ...]
    program: str
    reference: Reference
    evaluator: Evaluator
    incumbent_s: float | None
    control: tuple[str, Config] | None
    cold_bytes: int


@dataclass(frozen=True)
class Timed:
    """Runs of one library, or why there are none."""

    latencies_s: tuple[float, ...] = ()
    run_s: float = 0.0
    error: ErrorKind | None = None
    message: str = ""


@dataclass(frozen=True)
class TimedAll:
    """Answer to a TimeJob, in its order, and to a ReferenceJob, which has one.

    Attributes:
        positive: see ``Reference``.
        host: the machine it ran on, if that is not this one.
    """

    runs: tuple[Timed, ...]
    positive: bool = False
    host: str = ""


class DeviceLost(Exception):  # noqa: N818 - an event, not an error of this program
    """A session with a device ended while it was in use.

    Attributes:
        note: file on the device in which its process may have written why, see ``DeviceSession.last_note``.
    """

    def __init__(self, note: str, cause: str) -> None:
        super().__init__(cause)
        self.note = note


@dataclass(frozen=True)
class Library:
    """A candidate as built."""

    path: str
    built: Built
