"""What every TuningLog owes. Subclass, and give a ``log`` fixture: an empty, open log."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from hypothesis import given, settings
from sqlalchemy import event

from schedules.target import Target
from schedules.vocabulary.errors import LogError
from tests.tuning_logs_tests.samples import AVX2, AVX512, KEY, config, failed, other_key, records, timed
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import TuningLog


class StoreSuite:
    """The contract's promises but durability, which only a file can keep."""

    def test_an_empty_log_answers_nothing(self, log: TuningLog) -> None:
        assert log.best(KEY) is None
        assert list(log.records()) == list(log.records(KEY)) == list(log.workloads()) == []
        assert log.workload(KEY.task) is None
        assert not log.targets()
        assert not log.counts()
        log.append([])
        assert "no record" in log.explain_miss(KEY)

    def test_records_come_back_oldest_first(self, log: TuningLog) -> None:
        appended = [timed(index, 1.0, when=float(index)) for index in range(5)]
        log.append([appended[3], appended[1]])
        log.append([appended[4], appended[0], appended[2]])
        assert list(log.records(KEY)) == appended

    def test_equal_times_keep_the_order_of_arrival(self, log: TuningLog) -> None:
        appended = [timed(index, 1.0) for index in (3, 1, 2)]
        log.append(appended)
        assert list(log.records(KEY)) == list(log.records()) == appended

    def test_a_best_record_is_asked_for_once(self, log: TuningLog) -> None:
        log.append([timed(1, 2.0), timed(2, 1.0), timed(3, 0.5, key=other_key(task="another"))])
        fresh = TuningLog(log.database)  # knows no key's number yet
        said: list[str] = []

        def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            said.append(statement)

        event.listen(log.database.engine, "before_cursor_execute", note)
        try:
            for count, key, best in (
                (1, KEY, timed(2, 1.0)),
                (2, KEY, timed(2, 1.0)),
                (3, other_key(task="none"), None),
            ):
                assert fresh.best(key) == best
                assert len([text for text in said if not text.startswith("BEGIN")]) == count
        finally:
            event.remove(log.database.engine, "before_cursor_execute", note)

    def test_a_whole_log_is_walked_across_pages(self, log: TuningLog) -> None:
        appended = [
            timed(index, 1.0, key=other_key(task=f"t{index % 3}"), when=float(index // 7)) for index in range(2345)
        ]
        log.append(appended)
        assert list(log.records()) == appended

    def test_a_log_may_grow_while_it_is_read(self, log: TuningLog) -> None:
        log.append([timed(0, 1.0)])
        for record in log.records():
            log.append([dataclasses.replace(record, when=-1.0)])
        assert len(list(log.records())) == 2

    @pytest.mark.parametrize("field", ["task", "target", "space", "tvm"])
    def test_keys_are_never_mixed(self, log: TuningLog, field: str) -> None:
        other = other_key(**{field: "other"})
        log.append([timed(1, 1.0), timed(2, 0.5, key=other)])
        assert log.best(KEY) == timed(1, 1.0)
        assert list(log.records(other)) == [timed(2, 0.5, key=other)]

    def test_best_is_the_least_median(self, log: TuningLog) -> None:
        steady = timed(1, 2.0, 2.0, 2.0)
        lucky_once = timed(2, 0.1, 3.0, 3.0)
        log.append([lucky_once, steady, failed(3)])
        assert log.best(KEY) == steady

    def test_failures_alone_have_no_best(self, log: TuningLog) -> None:
        log.append([failed(1), failed(2, "timeout")])
        assert log.best(KEY) is None

    def test_a_remeasurement_corrects_a_luckier_one(self, log: TuningLog) -> None:
        log.append([timed(1, 0.1, when=1.0), timed(2, 0.5, when=2.0)])
        log.append([timed(1, 0.9, when=3.0)])
        assert log.best(KEY) == timed(2, 0.5, when=2.0)

    def test_newest_means_measured_last_not_stored_last(self, log: TuningLog) -> None:
        log.append([timed(1, 0.9, when=3.0)])
        log.append([timed(1, 0.1, when=1.0)])
        assert log.best(KEY) == timed(1, 0.9, when=3.0)

    def test_of_equal_times_the_last_stored_is_newest(self, log: TuningLog) -> None:
        log.append([timed(1, 0.1), timed(1, 0.9)])
        assert log.best(KEY) == timed(1, 0.9)

    def test_a_later_failure_does_not_undo_a_success(self, log: TuningLog) -> None:
        log.append([timed(1, 0.1, when=1.0), failed(1, when=2.0)])
        assert log.best(KEY) == timed(1, 0.1, when=1.0)

    def test_remeasuring_one_key_leaves_another_alone(self, log: TuningLog) -> None:
        other = other_key(task="other")
        log.append([timed(1, 0.1, when=1.0), timed(1, 0.9, key=other, when=2.0)])
        assert log.best(KEY) == timed(1, 0.1, when=1.0)

    def test_ties_go_to_the_older(self, log: TuningLog) -> None:
        log.append([timed(1, 0.5, when=2.0), timed(2, 0.5, when=1.0)])
        assert log.best(KEY) == timed(2, 0.5, when=1.0)

    def test_the_same_record_is_kept_once(self, log: TuningLog) -> None:
        assert log.append([timed(1, 1.0), timed(1, 1.0), timed(2, 1.0)]) == 2
        assert log.append([timed(1, 1.0), timed(3, 1.0)]) == 1
        log.append([timed(1, 1.0)])
        assert len(list(log.records())) == 3

    def test_every_field_tells_records_apart(self, log: TuningLog) -> None:
        first = timed(1, 1.0)
        changed = [
            dataclasses.replace(first, trace="[]"),
            dataclasses.replace(first, when=1.0),
            dataclasses.replace(first, host="b"),
            dataclasses.replace(first, seed=2**70),
            dataclasses.replace(first, provenance={"model": "forest"}),
            dataclasses.replace(first, measurement=dataclasses.replace(first.measurement, compile_s=1.0)),
            dataclasses.replace(first, measurement=dataclasses.replace(first.measurement, run_s=1.0)),
            dataclasses.replace(first, measurement=dataclasses.replace(first.measurement, code_hash="c")),
        ]
        log.append([first, *changed])
        assert sorted(map(repr, log.records())) == sorted(map(repr, [first, *changed]))

    @pytest.mark.endurance
    def test_any_record_comes_back_as_it_was(self, log: TuningLog) -> None:
        @settings(max_examples=150)
        @given(record=records())
        def comes_back(record: TuningRecord) -> None:
            log.append([record])
            assert record in list(log.records(record.key))

        comes_back()

    def test_a_refused_batch_leaves_nothing(self, log: TuningLog) -> None:
        with pytest.raises(LogError, match="finite"):
            log.append([timed(1, 1.0), timed(2, 1.0, when=float("nan"))])
        assert list(log.records()) == []
        log.append([timed(1, 1.0)])
        assert list(log.records(KEY)) == [timed(1, 1.0)]

    def test_workloads_are_kept_as_last_given(self, log: TuningLog) -> None:
        log.append([timed(1, 1.0)])
        log.add_workload(KEY.task, "another")
        log.add_workload(KEY.task, '{"program": "é\u0000"}')
        log.add_workload("a", "")
        assert log.workload(KEY.task) == '{"program": "é\u0000"}'
        assert log.workload("a") == ""
        assert [task for task, _ in log.workloads()] == ["a", KEY.task]

    def test_many_workloads_are_walked_in_order(self, log: TuningLog) -> None:
        for index in range(205):
            log.add_workload(f"{index:04}", str(index))
        assert list(log.workloads()) == [(f"{index:04}", str(index)) for index in range(205)]

    def test_counts_tell_timed_from_failed(self, log: TuningLog) -> None:
        other = other_key(task="zzz")
        log.append([timed(1, 1.0), failed(2), failed(3), failed(4, "timeout"), timed(1, 1.0, key=other)])
        counts = log.counts()
        assert list(counts) == [KEY, other]
        assert (counts[KEY].timed, counts[KEY].failed) == (1, {"compile_error": 2, "timeout": 1})
        assert list(log.counts("zzz")) == [other]

    def test_a_miss_names_what_differs_in_the_target(self, log: TuningLog) -> None:
        log.add_target(AVX512)
        log.add_target(AVX2)
        there = other_key(target=AVX512.fingerprint)
        log.append([timed(index, 1.0, key=there) for index in range(12)])
        sentence = log.explain_miss(other_key(target=AVX2.fingerprint))
        assert f"12 records of this task for target {AVX512.fingerprint}" in sentence
        assert "isa differs: avx512 there, avx2 here" in sentence
        assert log.best(other_key(target=AVX2.fingerprint)) is None

    def test_targets_come_back(self, log: TuningLog) -> None:
        log.append([timed(1, 1.0, key=other_key(target=AVX512.fingerprint))])
        log.add_target(AVX512)
        log.add_target(Target("cuda", arch="sm_90"))
        log.add_target(AVX512)
        assert log.targets()[AVX512.fingerprint] == AVX512
        assert len(log.targets()) == 2

    def test_fastest_gives_every_config_by_its_newest_record(self, log: TuningLog) -> None:
        log.append([timed(1, 0.1, when=1.0), timed(1, 0.9, when=2.0), timed(2, 0.5), timed(3, 0.7), failed(4)])
        assert log.fastest(KEY, 2) == [timed(2, 0.5), timed(3, 0.7)]
        assert log.fastest(KEY, 9)[2:] == [timed(1, 0.9, when=2.0)]
        assert log.fastest(other_key(task="unknown"), 9) == []

    def test_a_config_is_recognised_by_all_its_knobs(self, log: TuningLog) -> None:
        log.append([timed(1, 0.1, when=1.0)])
        changed = dataclasses.replace(timed(1, 0.9, when=2.0), config=config(1, order="nchw"))
        log.append([changed])
        assert log.best(KEY) == timed(1, 0.1, when=1.0)

    def test_threads_may_share_a_log(self, log: TuningLog) -> None:
        def work(thread: int) -> None:
            for index in range(20):
                log.append([timed(thread * 100 + index, 1.0)])

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(list(log.records())) == 80

    def test_a_closed_log_says_so(self, log: TuningLog) -> None:
        log.close()
        log.close()
        uses = (
            lambda: log.append([timed(1, 1.0)]),
            lambda: log.append([]),
            lambda: log.best(KEY),
            lambda: list(log.records()),
            lambda: log.workload("a"),
            lambda: log.add_workload("a", "{}"),
            lambda: log.explain_miss(KEY),
            lambda: log.add_target(AVX2),
        )
        for use in uses:
            with pytest.raises(LogError, match="closed"):
                use()

    def test_the_state_of_some_tasks_changes_with_their_records_alone(self, log: TuningLog) -> None:
        log.append([timed(1, 1.0)])
        asked = ([KEY.task, "unknown"], [KEY.target])
        before = log.state(*asked)
        log.append([timed(2, 1.0, key=other_key(task="other")), timed(3, 1.0, key=other_key(target="llvm-other"))])
        log.append([timed(1, 1.0)])  # held already
        assert log.state(*asked) == before != log.state([], [])
        log.append([failed(4, key=other_key(space="conv2d/2"))])
        assert log.state(*asked) != before
