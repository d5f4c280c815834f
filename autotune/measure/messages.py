"""What the measuring process and its workers say to each other. All of it is plain data that pickles."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from autotune.measure.evaluator import Evaluator
from schedules.config import Config
from schedules.target import Target
from schedules.task import Task
from tuning_logs.measurement import ErrorKind


@dataclass(frozen=True)
class Settings:
    """What every worker is told once, at its start.

    Attributes:
        target: what to build for; its ``threads`` is the size of the pool that kernels run on.
        cores: the cores those threads are pinned to.
        seed: of the inputs.
        memory_bytes: how much a worker's address space may grow beyond what it starts with.
        cold: whether weights are to be met outside of the caches.
        lowering: the module that applies configs to programs; ``schedules.lower``, but for tests.
        directory: where libraries, programs, references and the workers' logs lie.
        device: the RPC device to run on, as HOST:PORT:KEY of its tracker; empty for this machine.
    """

    target: Target
    cores: tuple[int, ...]
    seed: int
    memory_bytes: int
    cold: bool
    lowering: str
    directory: str
    device: str = ""

    def to_json(self) -> str:
        """One line of JSON; ``from_json`` reads it back."""
        return json.dumps({**asdict(self), "target": self.target.to_json()})

    @staticmethod
    def from_json(text: str) -> Settings:
        """Inverse of ``to_json``."""
        data = json.loads(text)
        return Settings(**{**data, "target": Target.from_json(data["target"]), "cores": tuple(data["cores"])})


@dataclass(frozen=True)
class BuildJob:
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
    timeout_s: float


@dataclass(frozen=True)
class Built:
    """A library on disk, or why there is none; ``trace`` as in ``Measurement``."""

    compile_s: float
    code_hash: str = ""
    error: ErrorKind | None = None
    message: str = ""
    trace: str = ""


@dataclass(frozen=True)
class ReferenceJob:
    """Run the untuned library, keep its output, time it.

    Attributes:
        task: whose inputs to make.
        library: the untuned build.
        output: .npy file to write.
    """

    task: Task
    library: str
    output: str
    evaluator: Evaluator
    timeout_s: float


@dataclass(frozen=True)
class Reference:
    """A task's right output: where it lies, and whether its inputs had to be positive."""

    output: str
    positive: bool


@dataclass(frozen=True)
class TimeJob:
    """Check and time libraries of one task; more than one are interleaved, run by run.

    Attributes:
        configs: what each library was built from.
        program: file that holds the program; with the config it says how weights must be packed.
        reference: what their output must be.
        incumbent_s: latency to race against.
        control: the incumbent's library and config, timed in turn with a single contender.
        cold_bytes: how much other data a run's weights were last touched before.
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
    timeout_s: float


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


@dataclass(frozen=True)
class Lost:
    """A job whose worker died or had to be killed."""

    error: ErrorKind
    message: str
    spent_s: float


@dataclass(frozen=True)
class Broken:
    """Measuring itself is broken for this worker, whatever the job; in one line for people."""

    message: str


class DeviceLost(Exception):  # noqa: N818 - what happened, not whose mistake it was
    """A session ended under our hands.

    Attributes:
        note: where on the device its process may have said why, see ``DeviceSession.last_will``.
    """

    def __init__(self, note: str, cause: str) -> None:
        super().__init__(cause)
        self.note = note


Job = BuildJob | ReferenceJob | TimeJob
Reply = Built | TimedAll
READY = "ready"
