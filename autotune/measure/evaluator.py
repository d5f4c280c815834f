"""When to stop timing one candidate: the evaluators, as pure rules over the runs taken so far.

Notation: t_1 … t_n are the single runs in seconds, in order; the warm-up (the run whose numbers are checked) is not
among them. FLOP is constant for a candidate, so rules on FLOP/s need only the times.

    fixed        n = 500 runs                                      AdaTune's and AutoTVM's baseline
    time         Σt ≥ 100 ms                                       MetaSchedule's rule
    cv           AdaTune as printed: batches of 50, stop when the coefficient of variation of the *cumulative*
                 estimates FLOP·i/time(i) is below 0.1, three batches at least
    cv-released  AdaTune as released: the same over *per-batch* estimates, least and largest dropped above four batches
    adaptive     ours: race against the incumbent, else stop when the median is known to 1 %

The cv of a mean of 50 is a seventh of one run's, so both published rules stop at batch three nearly always (150 runs);
ours looks at the incumbent and at the error of the estimate itself instead.

Drift. A machine's clock was seen to change by 11 % several times a second, which no number of runs in a row averages
out and which outweighs most differences between good configs. So while a candidate is a contender, the incumbent is
timed in turn with it, as a control: the race is against the control's runs of this moment, and where those differ from
the incumbent's record the candidate's runs are brought to the record's speed (``at_speed_of``).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from schedules.vocabulary.choices import choose

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, for a normal sample."""

MEDIAN_TO_MEAN = 1.2533
"""Standard error of a median over that of a mean, for a large normal sample: sqrt(pi / 2)."""


LEAST_CONTROLS = 4
"""Runs of the control from which on its median is used. Heuristic, not measured."""

NO_DRIFT = 0.03
"""Ratios of the control's runs to its record that differ from 1 by no more are noise, and change nothing. Heuristic."""

CONFIRMATIONS = 2
"""How often a config that was faster than the best so far is timed again before it is believed; its slowest timing
counts. Timings of one config, each in turn with the same incumbent, differ by some 5 % on a shared machine, and the
luckiest of many became the incumbent that the next were compared with: on recorded tasks the best of 96 trials was
taken for 22 % faster than the fastest config there is, with one confirmation for 8 %, with two for 3 %
(docs/lab: search)."""


class Evaluator(Protocol):
    """A stopping rule. Frozen and picklable: it is sent to the process that times."""

    @property
    def races(self) -> bool:
        """Whether it looks at the incumbent, so that a control is worth its time."""
        ...

    def more(self, runs_s: Sequence[float], incumbent_s: float | None = None) -> int:
        """Return how many runs to take before the next call; 0 to stop.

        Args:
            runs_s: (n,) seconds of the runs so far, in order; for n = 0 the answer is at least 1.
            incumbent_s: latency of the task's best config so far.
        """
        ...


def taken(evaluator: Evaluator, runs_s: Sequence[float], incumbent_s: float | None = None) -> int:
    """Return how many of a recorded series ``evaluator`` would have taken."""
    count = 0
    while count < len(runs_s):
        more = evaluator.more(runs_s[:count], incumbent_s)
        if not more:
            break
        count += more
    return min(count, len(runs_s))


@dataclass(frozen=True)
class FixedCount:
    """Always ``runs`` runs."""

    runs: int = 500
    races: ClassVar[bool] = False

    def more(self, runs_s: Sequence[float], incumbent_s: float | None = None) -> int:
        """Return the number of missing runs."""
        return max(0, self.runs - len(runs_s))


@dataclass(frozen=True)
class FixedTime:
    """Runs until they add up to ``seconds``."""

    seconds: float = 0.1
    races: ClassVar[bool] = False

    def more(self, runs_s: Sequence[float], incumbent_s: float | None = None) -> int:
        """Return the number of missing runs at the speed so far."""
        if not runs_s:
            return 1
        spent = math.fsum(runs_s)
        return max(0, math.ceil((self.seconds - spent) * len(runs_s) / spent))


@dataclass(frozen=True)
class CoefficientOfVariation:
    """AdaTune's rule.

    Attributes:
        cumulative: as in the paper; False for the released code.
        batch: runs between two looks.
        threshold: the paper's ε.
        least_batches, most_runs: bounds; 500 is the baseline it must not exceed.
    """

    cumulative: bool = True
    batch: int = 50
    threshold: float = 0.1
    least_batches: int = 3
    most_runs: int = 500
    races: ClassVar[bool] = False

    def more(self, runs_s: Sequence[float], incumbent_s: float | None = None) -> int:
        """Another batch, or nothing."""
        count = len(runs_s)
        batches = count // self.batch
        if count >= self.most_runs:
            return 0
        if batches >= self.least_batches and _variation(self._estimates(runs_s, batches)) < self.threshold:
            return 0
        return min(self.batch, self.most_runs - count)

    def _estimates(self, runs_s: Sequence[float], batches: int) -> list[float]:
        sums = [math.fsum(runs_s[i * self.batch : (i + 1) * self.batch]) for i in range(batches)]
        if self.cumulative:
            return [(i + 1) / math.fsum(sums[: i + 1]) for i in range(batches)]
        speeds = sorted(1 / total for total in sums)
        return speeds[1:-1] if batches > 4 else speeds


def _variation(values: Sequence[float]) -> float:
    """Population standard deviation over mean."""
    return statistics.pstdev(values) / statistics.fmean(values)


@dataclass(frozen=True)
class Adaptive:
    """Race the incumbent; a contender runs until its median is known well enough.

    A run is disturbed only upwards (interrupts, other processes), so the least run bounds the undisturbed latency from
    above, and comes nearer to it with every run. A candidate is stopped if its least of n runs is still above
    ``margins[n-1]`` times the incumbent. That is evidence that it is slower, not a proof. One run stops it only if that
    took ``disturbance_s``: a short kernel that the system interrupts looks twenty times as slow, and a good one would
    be lost. The others run until z standard errors of the median (from the median absolute deviation, which is robust
    against disturbances) are within ``precision`` of it.

    Attributes:
        margins: heuristic; they shrink with n because the least of several runs is nearer to the undisturbed time.
        disturbance_s: seconds; heuristic: an interrupt takes less.
        z, precision: two standard errors within 1 % of the median: smaller differences than configs usually have.
        least_runs, most_runs: bounds of the number of runs.
        cap_s: bound of the seconds of all runs together, unless two runs take longer.

    Evidence for the defaults: on simulated machines whose clock drifts as above, the chosen config is within 2 % of the
    best in at least 95 % of the seeds (``tests/autotune_tests/measure_tests/test_evaluator.py``).
    """

    margins: tuple[float, ...] = (2.0, 1.3, 1.15, 1.1)
    disturbance_s: float = 3e-3
    z: float = 2.0
    precision: float = 0.01
    least_runs: int = 8
    most_runs: int = 60
    cap_s: float = 0.03
    races: ClassVar[bool] = True

    def more(self, runs_s: Sequence[float], incumbent_s: float | None = None) -> int:
        """One more, or nothing."""
        count = len(runs_s)
        if count == 0:
            return 1
        if incumbent_s is not None and self._hopeless(runs_s, incumbent_s):
            return 0
        if count >= self.most_runs or (count >= 2 and math.fsum(runs_s) >= self.cap_s):
            return 0
        if count < self.least_runs:
            return 1
        center, half = median_interval(runs_s, self.z)
        if incumbent_s is not None and center - 2 * half > incumbent_s:
            return 0
        return int(half > self.precision * center)

    def _hopeless(self, runs_s: Sequence[float], incumbent_s: float) -> bool:
        if len(runs_s) == 1 and runs_s[0] < self.disturbance_s:
            return False
        margin = self.margins[min(len(runs_s), len(self.margins)) - 1]
        return min(runs_s) > incumbent_s * margin


def median_interval(runs_s: Sequence[float], z: float) -> tuple[float, float]:
    """(median, z standard errors of it), the error from the median absolute deviation."""
    center = statistics.median(runs_s)
    deviation = statistics.median(abs(run - center) for run in runs_s)
    return center, z * MEDIAN_TO_MEAN * MAD_TO_SIGMA * deviation / math.sqrt(len(runs_s))


def at_speed_of(incumbent_s: float, runs_s: Sequence[float], controls_s: Sequence[float]) -> tuple[float, ...]:
    """Runs as they would have been at the machine's speed when the incumbent's record was made.

    Args:
        incumbent_s: the incumbent's recorded latency.
        runs_s: (n,) the candidate's runs.
        controls_s: (m,) the incumbent's runs, taken in turn with them.

    Returns:
        (n,) ``runs_s`` times incumbent / median of the controls; unchanged where that ratio is within noise or rests on
        too few controls.
    """
    if len(controls_s) < LEAST_CONTROLS:
        return tuple(runs_s)
    ratio = incumbent_s / statistics.median(controls_s)
    if abs(ratio - 1) <= NO_DRIFT:
        return tuple(runs_s)
    return tuple(run * ratio for run in runs_s)


FINAL_EVALUATOR = Adaptive(least_runs=15, most_runs=100, precision=0.003, cap_s=0.08)
"""For finalists: they are few and close to each other, so their medians are wanted to 0.3 %."""


_FACTORIES: dict[str, Callable[[], Evaluator]] = {
    "adaptive": Adaptive,
    "fixed": FixedCount,
    "time": FixedTime,
    "cv": CoefficientOfVariation,
    "cv-released": lambda: CoefficientOfVariation(cumulative=False),
}

EVALUATORS: tuple[str, ...] = tuple(_FACTORIES)
"""Every name that ``make_evaluator`` knows; the first is the default."""


def make_evaluator(name: str) -> Evaluator:
    """The evaluator called ``name``.

    Raises:
        UsageError: if ``name`` is unknown.
    """
    return choose("--evaluator", name, _FACTORIES)()


BASELINE_EVALUATOR = Adaptive(least_runs=3, most_runs=10, cap_s=0.05)
"""Few runs: the untuned latency is for reports, and nothing is decided by it."""
