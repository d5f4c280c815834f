"""RecordKey and TuningRecord: a measurement and everything needed to know when it applies."""

from __future__ import annotations

from dataclasses import dataclass, field

from schedules.config import Config
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

    Attributes:
        key: when the record applies.
        config: what was measured.
        measurement: what came of it.
        trace: the S-TIR schedule trace as JSON text; empty where the candidate did not lower.
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
