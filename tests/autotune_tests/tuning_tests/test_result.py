"""Results of runs as values."""

from __future__ import annotations

import json
from pathlib import Path

from autotune.events import ignore
from autotune.tuning.result import PHASES, PhaseClock, Result, combined
from autotune.validation.verdict import Verdict


def result(model: str, **fields: object) -> Result:
    return Result(model, Path(f"{model}.tuned"), "target", 2, 3, **fields)


def test_the_fields_are_those_of_the_command_line() -> None:
    data = json.loads(json.dumps(result("a").to_data(), allow_nan=False))
    assert data["latency_ms"] == {"untuned": None, "tuned": None}
    assert set(data["phase_s"]) == set(PHASES)
    assert "specialisations" not in data


def test_parts_add_up_and_the_worst_error_counts() -> None:
    good, bad = Verdict("r", 1e-7, 1e-6, True), Verdict("r", 1.0, 0.5, False)
    whole = combined([result("a", verified=good, reason="done"), result("b", verified=bad, reason="done")])
    assert (whole.tasks, whole.verified, whole.reason) == (6, bad, "done")
    assert [part["model"] for part in whole.to_data()["specialisations"]] == ["a", "b"]


def test_fallback_partitions_are_listed_under_the_name_users_know() -> None:
    whole = combined([result("a", fallback_partitions=(("NonZero",),))])
    whole = Result(**{**whole.__dict__, "fallback_partitions": (("NonZero",),)})
    assert whole.to_data()["islands"] == [["NonZero"]]
    assert "segments" in whole.to_data()


def test_seconds_are_charged_to_phases_and_can_be_moved() -> None:
    clock = PhaseClock(ignore)
    with clock.phase("build"):
        pass
    built = clock.phase_s["build"]
    assert built > 0
    clock.move(built, "build", "verify")
    assert clock.phase_s["build"] == 0
    assert clock.phase_s["verify"] == built
