"""One record in its three forms: object, JSON data and row."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from hypothesis import given

from schedules.vocabulary.errors import LogError
from tests.tuning_logs_tests.samples import KEY, records, timed
from tuning_logs.codec import digest, from_data, from_row, packed_text, to_data, to_row, unpacked_text
from tuning_logs.record import TuningRecord


def row_of(record: TuningRecord, **changed: object) -> SimpleNamespace:
    return SimpleNamespace(id=7, **{**to_row(record, 1), **changed})


@given(record=records())
def test_a_record_survives_its_row(record: TuningRecord) -> None:
    assert from_row(row_of(record), record.key) == record
    assert from_data(to_data(record)) == record


def test_every_field_takes_part_in_the_digest() -> None:
    record = timed(1, 1.0)
    changed = [
        dataclasses.replace(record, seed=9),
        dataclasses.replace(record, host="b"),
        dataclasses.replace(record, key=dataclasses.replace(KEY, tvm="1")),
        dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, run_s=2.0)),
    ]
    assert len({digest(variant) for variant in (record, *changed)}) == 5


@pytest.mark.parametrize(
    "damage", [{"trace": b"no"}, {"latencies_s": b"123"}, {"config": "{"}, {"seed": "x"}, {"provenance": "["}], ids=str
)
def test_a_damaged_row_names_itself(damage: dict[str, object]) -> None:
    with pytest.raises(LogError, match="record 7 of the tuning log is damaged"):
        from_row(row_of(timed(1, 1.0), **damage), KEY)


def test_text_is_packed_and_comes_back() -> None:
    for text in ("", "é" * 1000, "t\ud800\x00"):
        assert unpacked_text(packed_text(text)) == text
    assert packed_text("") == b""
