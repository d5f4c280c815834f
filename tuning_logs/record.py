"""RecordKey and TuningRecord: a measurement and everything needed to know when it applies."""

from __future__ import annotations

from dataclasses import dataclass, field

from schedules.config import Config
from schedules.traces import SPACE as TRACES
from schedules.traces import check_config
from schedules.vocabulary.errors import LogError, ScheduleError
from tuning_logs.measurement import Measurement


@dataclass(frozen=True, order=True)
class RecordKey:
    """When a record may stand in for a new measurement. Each field is here for one reason.

    Attributes:
        task: another program has another speed (structural hash of the normalised PrimFunc).
        target: another machine, thread count or instruction set has another speed (``Target.fingerprint``).
        space: another meaning of the knobs builds another program from the same config (``name/version``).
        tvm: another compiler emits other code.
    """

    task: str
    target: str
    space: str
    tvm: str


@dataclass(frozen=True)
class TuningRecord:
    """One config's measurement with its key and provenance.

    Its config is of the key's space. A config that is an imported trace holds only what a trace may.

    Attributes:
        key: when the record applies.
        config: what was measured.
        measurement: what came of it.
        trace: the S-TIR schedule trace as JSON text; empty where the candidate did not lower. It is shown and never
            replayed.
        when: seconds since the epoch, UTC.
        host: name of the machine that measured.
        seed: the run's seed.
        provenance: anything else worth keeping (versions, evaluator, model name), JSON-able.
    """

    key: RecordKey
    config: Config
    measurement: Measurement
    trace: str = ""
    when: float = 0.0
    host: str = ""
    seed: int = 0
    provenance: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.config.space != self.key.space:
            raise LogError(
                f"a record of space {ascii(self.key.space)[:60]} has a config of {ascii(self.config.space)[:60]}"
            )
        if self.config.space == TRACES:
            try:
                check_config(self.config)
            except ScheduleError as error:
                raise LogError(str(error)) from error
