"""Keys and records as values."""

from __future__ import annotations

import dataclasses

from tests.tuning_logs_tests.samples import KEY, timed
from tuning_logs.record import RecordKey


def test_keys_are_ordered_and_tell_every_field_apart() -> None:
    others = [dataclasses.replace(KEY, **{field.name: "~"}) for field in dataclasses.fields(RecordKey)]
    assert len({KEY, *others}) == 5
    assert sorted([*others, KEY])[0] == KEY


def test_the_way_of_a_trace_is_no_part_of_a_measurement() -> None:
    record = timed(1, 1.0)
    assert dataclasses.replace(record.measurement, trace="[]") == record.measurement
    assert dataclasses.replace(record, trace="[]") != record
