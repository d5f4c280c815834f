"""Profiles of subgraphs and whole models in the log: measured once, then read."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass

import tvm

from schedules.config import Config
from schedules.space import Space
from schedules.target import Target
from schedules.vocabulary.errors import MissingRecordError
from tuning_logs.measurement import LEAST_S, Measurement
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.sql_store import TuningLog


@dataclass(frozen=True)
class ProfileCache:
    """Seconds by what was measured and a name of what it was measured on.

    Attributes:
        target: of the machine.
        frozen: measure nothing.
    """

    log: TuningLog
    target: Target
    frozen: bool

    def recorded(self, what: str, names: Sequence[str], subject: str) -> list[float] | None:
        """The seconds recorded last of each of ``names``; None if some have none and may be measured.

        Args:
            subject: what the names stand for, in a message.

        Raises:
            MissingRecordError: if some have none and nothing may be measured.
        """
        space = Space(f"lane-{what}", 1, ())
        keys = [self._key(space, name) for name in names]
        records = [record for key in keys if (record := self.log.best(key, space)) is not None]
        if len(records) == len(names):
            return [record.measurement.latency_s for record in records]
        if self.frozen:
            raise MissingRecordError(
                f"the log lacks {len(names) - len(records)} of {len(names)} {subject}; "
                "tune with the same --lanes first, or build with --lanes cpu"
            )
        return None

    def keep(self, what: str, names: Sequence[str], seconds: Sequence[float]) -> list[float]:
        """Record the seconds of each of ``names``, and return what was recorded: ``LEAST_S`` at least."""
        kept = [max(value, LEAST_S) for value in seconds]
        for name, value in zip(names, kept, strict=True):
            key, measured = self._key(Space(f"lane-{what}", 1, ()), name), Measurement(latencies_s=(value,))
            self.log.append([TuningRecord(key, Config(key.space, ()), measured, "", time.time(), platform.node())])
        return kept

    def _key(self, space: Space, name: str) -> RecordKey:
        return RecordKey(name, self.target.fingerprint, space.identity, tvm.__version__)
