"""What happens to a run of the soak: nothing, an interruption, a second run, or a machine that misbehaves."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.kills.campaign import FEW, MANY, Campaign, Killed, Run
from tests.kills.moments import PHASES, Course
from tests.kills.processes import of_run
from tests.soak.shim import Shim

DISK_MIB = 256
"""Size of the disk that the runs write to."""

JUMPS_S = (-10 * 365 * 86400, -86400, -3600, -2, 2, 3600, 86400, 10 * 365 * 86400)
"""How far the time of day is set off, seconds."""

BETWEEN_JUMPS_S = 1.0
"""Most seconds between two of them."""

SYNC_S = 0.2
"""What writing through to a slow disk takes."""

SPARE_BYTES = 1 << 20
"""Address space that the processes of a run may still take once there is no more memory."""


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[None]:
    """A disk of its own at ``folder``, in memory, so that it can be full.

    Raises:
        PermissionError: of who may not mount; ``unshare --map-root-user --mount`` may.
    """
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tune-soak", str(folder)]
    if subprocess.run(mounted, capture_output=True).returncode:
        raise PermissionError("may not mount a disk; run under: unshare --map-root-user --mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass
class Scenarios:
    """Runs of a campaign, and what happens to each.

    Args:
        shim: moves clocks and slows disks.
        rng: of all that is random.
        phases: in which a disturbance begins.
    """

    shim: Shim
    rng: random.Random
    phases: Sequence[str] = PHASES[:-1]

    def undisturbed(self, campaign: Campaign) -> Killed:
        """A run, which goes on from the ones before."""
        return campaign.ended(campaign.started(len(campaign.stored) + FEW), "", "")

    def interrupted(self, campaign: Campaign) -> Killed:
        """Ctrl-C at a random moment."""
        run = campaign.started(len(campaign.stored) + MANY)
        phase = self._reached(campaign, run)
        run.process.send_signal(signal.SIGINT)
        return campaign.ended(run, "interruption", phase)

    def side_by_side(self, campaign: Campaign) -> Killed:
        """Two runs with one log and one artifact; both may measure the same config."""
        campaign.measured_twice()
        trials = len(campaign.stored) + FEW
        first, second = (
            campaign.ended(run, "", "") for run in [campaign.started(trials), campaign.started(trials + FEW)]
        )
        both = Course({}, {}, 0, first.events.phase, first.events.finished and second.events.finished)
        for killed in (first, second):
            for task, count in killed.events.acknowledged.items():
                both.acknowledged[task] = max(count, both.acknowledged.get(task, 0))
        return Killed(
            "",
            "",
            first.code or second.code,
            first.stderr + second.stderr,
            both,
            first.orphans + second.orphans,
            max(first.ended_s, second.ended_s),
        )

    def full_disk(self, campaign: Campaign) -> Killed:
        """From a random moment on no byte can be written."""
        run = campaign.started(len(campaign.stored) + MANY)
        phase = self._reached(campaign, run)
        filler = campaign.folder / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass
        try:
            return campaign.ended(run, "full disk", phase)
        finally:
            filler.unlink()

    def less_memory(self, campaign: Campaign) -> Killed:
        """From a random moment on hardly a byte can be allocated."""
        run = campaign.started(len(campaign.stored) + MANY)
        phase = self._reached(campaign, run)
        for process in of_run(run.name):
            with contextlib.suppress(psutil.Error):
                most = process.memory_info().vms + SPARE_BYTES
                process.rlimit(psutil.RLIMIT_AS, (most, most))
        return campaign.ended(run, "less memory", phase)

    def clock_jumps(self, campaign: Campaign) -> Killed:
        """The time of day is set back and forth by seconds to years."""
        run = campaign.started(len(campaign.stored) + FEW, self.shim.environment)
        while run.process.poll() is None:
            self.shim.set(offset_s=self.rng.choice(JUMPS_S))
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(self.rng.uniform(0.0, BETWEEN_JUMPS_S))
        self.shim.set()
        return campaign.ended(run, "", "")

    def slow_disk(self, campaign: Campaign) -> Killed:
        """Writing through takes a fifth of a second each time."""
        self.shim.set(sync_s=SYNC_S)
        try:
            return campaign.ended(campaign.started(len(campaign.stored) + FEW, self.shim.environment), "", "")
        finally:
            self.shim.set()

    @property
    def all(self) -> dict[str, Callable[[Campaign], Killed]]:
        """Every scenario by name."""
        return {
            "undisturbed": self.undisturbed,
            "Ctrl-C": self.interrupted,
            "two side by side": self.side_by_side,
            "full disk": self.full_disk,
            "less memory": self.less_memory,
            "clock set": self.clock_jumps,
            "slow disk": self.slow_disk,
        }

    def _reached(self, campaign: Campaign, run: Run) -> str:
        """Wait for a random moment of a random phase; the phase in which the run is."""
        campaign.reached(run, self.rng.choice(self.phases))
        return run.phase
