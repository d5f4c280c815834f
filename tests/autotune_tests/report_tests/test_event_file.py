"""Events as lines of a file."""

import json

import pytest

from autotune.events import PhaseBegan, ReferenceTimed, TuningEnded
from autotune.report.event_file import EventFile
from schedules.vocabulary.errors import UsageError
from tests.autotune_tests.report_tests.test_progress import BEGAN, B, began, slot, state

EVENTS = (
    PhaseBegan("import"),
    ReferenceTimed("onnxruntime", "1.0", 2e-3),
    BEGAN,
    began(B, "it is the slowest"),
    slot(B, state("b", 4e-5, None, weight=3), failed=1),
    TuningEnded("the budget is spent"),
)


def test_every_event_is_a_line_at_once(tmp_path):
    path = tmp_path / "events.jsonl"
    with EventFile(path) as written:
        for number, event in enumerate(EVENTS, start=1):
            written(event)
            assert len(path.read_text().splitlines()) == number
        written.write({"event": "result", "tasks": 2})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = ["phase", "reference_timed", "tuning_began", "slot_began", "slot_done", "tuning_ended", "result"]
    assert [line["event"] for line in lines] == kinds
    assert all(line["t"] > 1e9 for line in lines)
    assert lines[1]["latency_ms"] == pytest.approx(2.0)
    assert [task["key"] for task in lines[2]["tasks"]] == ["a", "b"]
    assert (lines[3]["key"], lines[3]["why"], lines[3]["count"]) == ("b", "it is the slowest", 2)
    assert (lines[4]["measured"], lines[4]["failures"], lines[4]["best_us"]) == (2, ["timeout"], pytest.approx(40.0))


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(UsageError, match="name another --events FILE"):
        EventFile(tmp_path / "nowhere" / "events.jsonl")
