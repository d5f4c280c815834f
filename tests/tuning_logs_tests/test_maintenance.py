"""verify finds every kind of damage, gc drops exactly what it is told to, stats add up."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedules.vocabulary.errors import UsageError
from tests.tuning_logs_tests.samples import AVX2, KEY, any_program, failed, other_key, timed
from tuning_logs.maintenance import gc, stats, verify
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import TuningLog, open_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TuningLog]:
    store = open_log(tmp_path / "tuning.db")
    store.add_workload(KEY.task, '{"program": 1}' * 20)
    store.add_target(AVX2)
    measurement = dataclasses.replace(timed(1, 1.0).measurement, compile_s=2.0, run_s=0.5)
    store.append([dataclasses.replace(timed(1, 1.0, 3.0), when=1.0, trace="[]" * 50, measurement=measurement)])
    store.append([timed(2, 0.5, when=2.0), failed(3, when=3.0), failed(4, "timeout", other_key(task="b"), when=4.0)])
    yield store
    store.close()


def injure(log: TuningLog, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(log.database.where)) as connection:
        connection.execute(statement)
        connection.commit()


def test_a_sound_log(log: TuningLog) -> None:
    report = verify(log, any_program)
    assert report.ok
    assert (report.records, report.workloads, report.targets) == (4, 1, 1)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE records SET config = replace(config, '1', '7') WHERE id = 1", "its config does not match its hash"),
        ("UPDATE records SET latency_s = 0.1 WHERE id = 1", "its latency is not the median of its runs"),
        ("UPDATE records SET latencies_s = x'00' WHERE id = 1", "record 1"),
        ("UPDATE records SET latencies_s = NULL WHERE id = 1", "record 1"),
        ("UPDATE records SET latencies_s = 'text' WHERE id = 1", "record 1"),
        ("UPDATE records SET error = 'odd' WHERE id = 3", "record 3"),
        ("UPDATE records SET message = 'other' WHERE id = 3", "record 3: digest"),
        ("UPDATE records SET seed = 'x' WHERE id = 1", "record 1"),
        ("UPDATE records SET trace = x'abcd' WHERE id = 1", "record 1"),
        ("UPDATE records SET trace = x'' WHERE id = 1", "record 1: digest"),
        ("UPDATE records SET provenance = '{' WHERE id = 1", "record 1"),
        ("UPDATE records SET key_id = 77 WHERE id = 1", "record 1: its key 77 is missing"),
        ("UPDATE records SET key_id = 77 WHERE id = 1", "foreign_key_check: records 1 keys"),
        ("UPDATE keys SET tvm = 'x'", "record 1: digest"),
        ("UPDATE workloads SET program = x'abcd' WHERE program IS NOT NULL", "workload f00d"),
        ("UPDATE workloads SET sha256 = 'abcd' WHERE program IS NOT NULL", "workload f00d: hash mismatch"),
        ("UPDATE targets SET description = '{' WHERE description IS NOT NULL", f"target {AVX2.fingerprint}"),
        ("UPDATE targets SET description = '7' WHERE description IS NOT NULL", f"target {AVX2.fingerprint}"),
    ],
)
def test_damage_is_found(log: TuningLog, statement: str, words: str) -> None:
    injure(log, statement)
    report = verify(log, any_program)
    assert not report.ok
    assert any(words in problem for problem in report.problems), report.problems
    assert not any("\n" in problem for problem in report.problems)


def test_a_torn_page_is_found(log: TuningLog) -> None:
    log.append([timed(index, 1.0, when=9.0) for index in range(100, 400)])
    log.close()
    path = Path(log.database.where)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 9000] = b"\x5a" * 9000
    path.write_bytes(content)
    store = open_log(path)
    report = verify(store, any_program)
    store.close()
    assert not report.ok


def test_damaged_records_are_left_out_until_they_are_dropped(log: TuningLog, caplog: pytest.LogCaptureFixture) -> None:
    injure(log, "UPDATE records SET trace = x'abcd' WHERE id = 1")
    assert len(list(log.records())) == 3
    assert "record 1 of the tuning log is damaged" in caplog.text
    assert gc(log, {"damaged"}, before=0.0).dropped == {"damaged": 1}
    assert len(list(log.records())) == 3
    assert verify(log, any_program).ok


def test_gc_drops_old_failures_only(log: TuningLog) -> None:
    assert gc(log, {"failed"}, before=4.0, dry_run=True).dropped == {"failed": 1}
    assert len(list(log.records())) == 4
    assert gc(log, {"failed"}, before=4.0).dropped == {"failed": 1}
    assert {record.when for record in log.records()} == {1.0, 2.0, 4.0}
    assert verify(log, any_program).ok


def test_gc_keeps_the_fastest(log: TuningLog) -> None:
    log.append([timed(2, 9.0, when=5.0)])  # config 2 turned out slow: its older, luckier record must not come back
    report = gc(log, {"dominated"}, before=100.0, keep=1)
    assert report.dropped == {"dominated": 2}
    assert [record.when for record in log.records(KEY)] == [1.0, 3.0]
    best = log.best(KEY)
    assert best is not None
    assert best.when == 1.0


def test_gc_gives_space_back(log: TuningLog) -> None:
    log.append([dataclasses.replace(timed(index, 1.0 + index), when=5.0) for index in range(2000)])
    report = gc(log, {"dominated", "failed"}, before=100.0)
    assert report.bytes_after < report.bytes_before / 2
    assert len(list(log.records(KEY))) == 64


@pytest.mark.parametrize(("drop", "keep"), [({"everything"}, 1), ({"failed"}, 0)])
def test_gc_refuses_what_it_does_not_know(log: TuningLog, drop: set[str], keep: int) -> None:
    with pytest.raises(UsageError, match=r"choose some of failed|at least 1"):
        gc(log, drop, before=0.0, keep=keep)  # type: ignore[arg-type]


_measured = st.builds(
    timed, st.integers(0, 4), st.sampled_from([0.1, 0.2, 0.3, 0.4]), when=st.integers(0, 9).map(float)
)
_failed = st.builds(failed, st.integers(0, 4), when=st.integers(0, 9).map(float))


@pytest.mark.endurance
def test_gc_never_changes_the_best(tmp_path: Path) -> None:
    log = open_log(tmp_path / "tuning.db")

    @settings(max_examples=60)
    @given(
        appended=st.lists(st.one_of(_measured, _failed), max_size=15),
        before=st.integers(0, 10).map(float),
        keep=st.integers(1, 3),
    )
    def unchanged(appended: list[TuningRecord], before: float, keep: int) -> None:
        gc_all(log)
        log.append(appended)
        best = log.best(KEY)
        gc(log, {"failed", "dominated"}, before=before, keep=keep)
        assert log.best(KEY) == best
        assert set(map(repr, log.records())) >= {repr(r) for r in appended if r.when >= before}

    unchanged()
    log.close()


def gc_all(log: TuningLog) -> None:
    with log.database.engine.connect() as connection:
        connection.exec_driver_sql("DELETE FROM records")


def test_stats_add_up(log: TuningLog) -> None:
    figures = stats(log)
    assert (figures.records, figures.timed, figures.failed) == (4, 2, {"compile_error": 1, "timeout": 1})
    assert (figures.tasks, figures.targets, figures.keys, figures.workloads) == (2, 1, 2, 1)
    assert (figures.oldest, figures.newest, figures.spent_s) == (1.0, 4.0, 2.5)
    assert figures.bytes >= Path(log.database.where).stat().st_size
    assert figures.where == log.database.where


def test_stats_of_an_empty_log(tmp_path: Path) -> None:
    store = open_log(tmp_path / "empty.db")
    figures = stats(store)
    assert (figures.records, figures.oldest, figures.spent_s) == (0, None, 0.0)
    store.close()
