"""Stand-ins for a device and a clock: deterministic, in this process, and they tell what was asked of them."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import onnx
import pytest

from autotune.builder import accuracy, one_lane
from autotune.host import roofline
from autotune.host.machine import host_target
from autotune.host.roofline import Roofline
from autotune.importer import guarded_import
from autotune.importer.import_worker import Limits
from autotune.importer.load import load_model
from autotune.measure import local_measurer
from autotune.measure.measurer import Candidate, Origin
from autotune.tuning import part
from autotune.validation.verify import compare_artifact
from schedules.lower import load_program, lower
from schedules.vocabulary.errors import ScheduleError
from tests.shipping import InlineMeasurer
from tuning_logs.measurement import Measurement

Answer = Callable[[Candidate], Measurement]

FAKE_ROOFLINE = Roofline(1e3, 1e3, 1e3, 1)


def by_config(candidate: Candidate) -> Measurement:
    """A latency between 10 and 20 µs that depends on the config alone."""
    share = zlib.crc32(candidate.config.to_json().encode()) / 2**32
    return Measurement((1e-5 * (1 + share),), compile_s=0.01, run_s=0.001, code_hash=candidate.config.to_json())


class FakeMeasurer:
    """Times by rule; what is shipped it compiles for real, in this process.

    Attributes:
        slots: every batch that was asked for.
        builder: builds what is shipped.
    """

    untuned = Measurement((1e-3,))
    origins: Sequence[Origin] = ()

    def __init__(self, answer: Answer = by_config) -> None:
        self.answer = answer
        self.slots: list[list[Candidate]] = []
        self.compile_s = 0.0
        self.measure_s = 0.0
        self.at_once = 1
        self.cold_bytes = 0
        self.expected: list[str] = []
        self.led: list[tuple[Candidate, float]] = []
        self.closed = False
        self._folder = tempfile.TemporaryDirectory(prefix="tune-fake-")
        self.builder = InlineMeasurer(host_target(1), Path(self._folder.name))

    def __enter__(self) -> FakeMeasurer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def measure(self, candidates: Sequence[Candidate], incumbent_s: float | None = None) -> list[Measurement]:
        """One answer per candidate."""
        self.slots.append(list(candidates))
        return [self.answer(candidate) for candidate in candidates]

    def lead(self, incumbent: Candidate, latency_s: float) -> None:
        """Kept."""
        self.led.append((incumbent, latency_s))

    def expect(self, candidates: Iterable[Candidate]) -> None:
        """Kept, soonest first."""
        self.expected = [candidate.task.key for candidate in candidates]

    def baseline_s(self, candidate: Candidate) -> Measurement:
        """The same for every task, slower than any answer."""
        return self.untuned

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        """Object files as a real measurer makes them."""
        return self.builder.objects(candidates)

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """What measuring says."""
        return [self.answer(candidate) for candidate in candidates]

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True
        self._folder.cleanup()

    @property
    def trials(self) -> int:
        """Candidates asked for."""
        return sum(map(len, self.slots))


class FakeRanker(FakeMeasurer):
    """One that remembers which finalists it ranked.

    Attributes:
        ranked: every group of finalists.
        rank_answer: what it says of them, if it differs from what measuring said.
    """

    def __init__(self, answer: Answer = by_config) -> None:
        super().__init__(answer)
        self.rank_answer = answer
        self.ranked: list[list[Candidate]] = []

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """One answer per finalist."""
        self.ranked.append(list(candidates))
        return [self.rank_answer(candidate) for candidate in candidates]


class Interrupted(FakeMeasurer):
    """One that meets Ctrl-C in whatever it is asked to time.

    Attributes:
        asked: how often it was asked.
    """

    asked = 0

    def measure(self, candidates: Sequence[Candidate], incumbent_s: float | None = None) -> list[Measurement]:
        """Never an answer."""
        self.asked += 1
        raise KeyboardInterrupt

    def baseline_s(self, candidate: Candidate) -> Measurement:
        """Never an answer."""
        self.asked += 1
        raise KeyboardInterrupt


class FakeClock:
    """Every look costs ``step`` seconds."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 100.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def if_it_lowers(candidate: Candidate) -> Measurement:
    """As ``by_config``, but what cannot be applied to the program fails as it would on a machine."""
    try:
        lower(load_program(candidate.program), candidate.config, host_target(1))
    except ScheduleError as error:
        return Measurement(error="lower_error", message=str(error))
    return by_config(candidate)


def import_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import models in this process: they are the tests' own, and a fork forgets the scripts that it parsed."""

    def here(
        path: Path,
        inputs: guarded_import.Inputs,
        work: Callable[[guarded_import.Sound], object],
        foreign: bool = False,
        apart: bool = False,
        limits: Limits | None = None,
    ) -> tuple[onnx.ModelProto, object]:
        result = work(lambda _: None)
        return load_model(path, inputs, foreign, apart), result

    monkeypatch.setattr(guarded_import, "guarded", here)


def compare_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify artifacts in this process."""
    monkeypatch.setattr(accuracy, "compare_isolated", lambda *arguments: compare_artifact(*arguments[:3]))
    monkeypatch.setattr(accuracy, "run_isolated", lambda *_: None)


def fake_device(
    monkeypatch: pytest.MonkeyPatch, median_s: Callable[..., float] = lambda *_: 1e-3, forks: bool = False
) -> list[FakeMeasurer]:
    """Fake every time of a run, import and verify in this process; kernels are built and run for real.

    Args:
        median_s: says what a whole model takes, in seconds.
        forks: whether models are imported in forks, as in a run: for importers that crash.

    Returns:
        The measurers that are opened, filled as the run goes on.
    """
    opened: list[FakeMeasurer] = []

    def start(*_: object, **__: object) -> FakeMeasurer:
        opened.append(FakeMeasurer(if_it_lowers))
        return opened[-1]

    monkeypatch.setattr(local_measurer, "LocalMeasurer", start)
    monkeypatch.setattr(one_lane, "median_s", median_s)
    monkeypatch.setattr(roofline, "measure_roofline", lambda *_: FAKE_ROOFLINE)
    if not forks:
        import_here(monkeypatch)
    compare_here(monkeypatch)
    return opened


def interrupt_the_first_part(monkeypatch: pytest.MonkeyPatch) -> list[Interrupted]:
    """Ctrl-C while the first part of a run is measured; timing anything whole after that fails the test.

    Returns:
        The measurers that were opened, filled as the run goes on.
    """
    started: list[Interrupted] = []

    def start(*_: object, **__: object) -> Interrupted:
        started.append(Interrupted())
        return started[-1]

    monkeypatch.setattr(local_measurer, "LocalMeasurer", start)

    def once(value, what):
        return lambda *_: value if not any(fake.asked for fake in started) else pytest.fail(f"measured {what} again")

    monkeypatch.setattr(part, "reference_latency", once(None, "ONNX Runtime"))
    monkeypatch.setattr(roofline, "measure_roofline", once(FAKE_ROOFLINE, "the roofline"))
    monkeypatch.setattr(one_lane, "median_s", lambda *_: pytest.fail("timed the whole"))
    compare_here(monkeypatch)
    return started
