"""Split, tune each part, compose: on parts that are tuned by a fake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.artifact.manifest import MANIFEST
from autotune.events import ignore
from autotune.options import Options
from autotune.tuning.composition import Composed, tune_composition
from autotune.tuning.result import PHASES, Result
from autotune.tuning.run_plan import MIN_BUDGET_S, PartJob, part_options
from autotune.validation.verdict import Verdict
from schedules.vocabulary.errors import VerificationError


class Halves:
    """Two parts; the whole is a folder with a manifest that names what was tuned."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.results: Sequence[Result | None] = ()

    def parts(self, folder: Path) -> Iterable[PartJob]:
        return [PartJob(Path(f"{name}.onnx"), Options(out=folder / name)) for name in ("a", "b")]

    def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
        self.results = results
        whole = folder / "whole"
        whole.mkdir()
        (whole / MANIFEST).write_text(", ".join(result.model for result in results if result))
        for result in results:
            if result is not None:
                (whole / result.artifact.name).mkdir()
        return Composed(whole, {"latency_ms": {"tuned": 3.0}})


def tuned(job: PartJob, observe: object, interrupted: bool) -> Result:
    return Result(job.model.name, job.options.out, "t", 2, 5, measured_trials=7, interrupted=interrupted)


def test_the_whole_is_put_in_place_and_reported_as_the_sum_of_its_parts(tmp_path: Path) -> None:
    out = tmp_path / "x.tuned"
    result = tune_composition(Halves(out), out, tuned, ignore)
    assert (out / MANIFEST).read_text() == "a.onnx, b.onnx"
    assert (result.tasks, result.measured_trials, result.artifact, result.latency_ms) == (10, 14, out, {"tuned": 3.0})
    assert [part.artifact for part in result.parts] == [out / "a", out / "b"]
    assert [path.name for path in tmp_path.iterdir()] == ["x.tuned"]  # nothing is left beside it


def test_time_outside_of_parts_is_charged_to_import_and_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    class Slow(Halves):
        def parts(self, folder: Path) -> Iterator[PartJob]:
            nonlocal now
            for job in super().parts(folder):
                now += 2.0
                yield job

        def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
            nonlocal now
            now += 5.0
            return super().compose(folder, results)

    monkeypatch.setattr("time.perf_counter", lambda: now)
    out = tmp_path / "x.tuned"
    result = tune_composition(Slow(out), out, tuned, ignore)
    assert result.phase_s == {**dict.fromkeys(PHASES, 0.0), "import": 4.0, "verify": 5.0}


def test_ctrl_c_in_one_part_is_told_to_the_next(tmp_path: Path) -> None:
    seen = []

    def stopped(job: PartJob, observe: object, interrupted: bool) -> Result:
        seen.append(interrupted)
        return replace(tuned(job, observe, interrupted), interrupted=True)

    result = tune_composition(Halves(tmp_path / "x"), tmp_path / "x", stopped, ignore)
    assert seen == [False, True]
    assert result.interrupted


def test_a_part_that_was_left_out_has_no_result(tmp_path: Path) -> None:
    composition = Halves(tmp_path / "x")
    result = tune_composition(
        composition, tmp_path / "x", lambda job, *rest: tuned(job, *rest) if job.model.stem == "a" else None, ignore
    )
    assert [part is None for part in composition.results] == [False, True]
    assert [part.model for part in result.parts] == ["a.onnx"]


def test_a_whole_that_is_wrong_leaves_what_is_there(tmp_path: Path) -> None:
    out = tmp_path / "x.tuned"
    tune_composition(Halves(out), out, tuned, ignore)
    before = (out / MANIFEST).read_text()

    class Wrong(Halves):
        def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
            raise VerificationError("wrong")

    with pytest.raises(VerificationError):
        tune_composition(Wrong(out), out, tuned, ignore)
    assert (out / MANIFEST).read_text() == before


def test_an_artifact_that_is_the_same_already_stays(tmp_path: Path) -> None:
    out = tmp_path / "x.tuned"
    tune_composition(Halves(out), out, tuned, ignore)
    written = (out / MANIFEST).stat().st_mtime_ns

    class Same(Halves):
        def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
            return Composed(None)

    tune_composition(Same(out), out, tuned, ignore)
    assert (out / MANIFEST).stat().st_mtime_ns == written


def test_a_part_has_its_share_of_budget_and_trials(tmp_path: Path) -> None:
    whole = Options(budget_s=30.0, trials=3, shapes=({"x": (1,)}, {"x": (2,)}), fallback=None)
    part = part_options(whole, 1 / 3, tmp_path / "part", {"x": (1,)})
    assert (part.seconds, part.trials, part.shapes, part.inputs) == (10.0, 1, (), {"x": (1,)})
    assert part_options(whole, 1e-6, tmp_path, {}).seconds == MIN_BUDGET_S


class WrongAtFirst(Halves):
    """Parts that were not compared, of a whole that is wrong until they were."""

    def parts(self, folder: Path) -> list[PartJob]:
        return [replace(job, compared=job.model.stem == "a") for job in super().parts(folder)]

    def compose(self, folder: Path, results: Sequence[Result | None]) -> Composed:
        if not all(result is None or result.verified for result in results):
            raise VerificationError("the whole is wrong")
        return super().compose(folder, results)


def test_parts_are_compared_where_the_whole_is_wrong_and_nothing_is_measured_again(tmp_path: Path) -> None:
    asked: list[PartJob] = []
    right = Verdict("reference", 0.0, 0.0, passed=True)

    def comparing(job: PartJob, observe: object, interrupted: bool) -> Result:
        asked.append(job)
        return replace(tuned(job, observe, interrupted), verified=right if job.compared else None)

    out = tmp_path / "x.tuned"
    result = tune_composition(WrongAtFirst(out), out, comparing, ignore)
    assert [(job.model.stem, job.compared) for job in asked] == [("a", True), ("b", False), ("b", True)]
    assert (asked[-1].options.trials, asked[-1].options.peer) == (0, False)
    assert (result.measured_trials, result.verified) == (14, right)
    with pytest.raises(VerificationError, match="the whole is wrong"):
        tune_composition(WrongAtFirst(out), tmp_path / "y.tuned", tuned, ignore)


def test_a_part_that_is_wrong_by_itself_ends_the_run(tmp_path: Path) -> None:
    def comparing(job: PartJob, observe: object, interrupted: bool) -> Result:
        if job.compared and job.model.stem == "b":
            raise VerificationError("b is wrong")
        return tuned(job, observe, interrupted)

    with pytest.raises(VerificationError, match="b is wrong"):
        tune_composition(WrongAtFirst(tmp_path), tmp_path / "x.tuned", comparing, ignore)
    assert not list(tmp_path.iterdir())
