"""A handler that does what a job says, and jobs for it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from autotune.host.fork_server import Handler, Job, Refused
from schedules.vocabulary.errors import UsageError

HANDLER = f"{__name__}:FaultyHandler"


@dataclass(frozen=True, kw_only=True)
class FaultyJob(Job):
    """One job; ``what`` is its fault, or nothing."""

    what: str = ""
    timeout_s: float = 20.0


class FaultyHandler(Handler):
    """Answers with its process id and its settings."""

    def __init__(self, settings: str) -> None:
        if settings == "broken":
            raise ValueError("these settings are broken")
        self._settings = settings

    def answer(self, job: FaultyJob) -> object:
        """Do what the job says."""
        if job.what == "die once" and not Path(self._settings).exists():
            Path(self._settings).touch()
            os.kill(os.getpid(), signal.SIGSEGV)
        if job.what == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        if job.what == "raise":
            raise RuntimeError("a bug")
        if job.what == "hang":
            time.sleep(600)
        if job.what == "hoard":
            bytearray(1 << 30)
        if job.what == "variable":
            return os.environ.get("TUNE_TEST")
        if job.what == "refuse":
            return Refused(UsageError("give another job"))
        return os.getpid(), self._settings
