"""Logs survive the trip through JSONL and damaged lines cost only themselves."""

from __future__ import annotations

import dataclasses
import io
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedules.vocabulary.errors import LogError
from tests.tuning_logs_tests.samples import AVX2, AVX512, KEY, any_program, failed, other_key, records, timed
from tuning_logs import exchange
from tuning_logs.codec import content_hash, digest, from_data, to_data
from tuning_logs.exchange import bounded_lines, export_lines, export_log, import_lines, import_log, merge
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import TuningLog, memory_log, open_log


def sample_log(count: int = 20) -> TuningLog:
    log = memory_log()
    log.add_target(AVX2)
    log.add_target(AVX512)
    log.add_workload(KEY.task, '{"program": "é"}')
    log.append([timed(index, 1.0 + index, 2.0, when=float(index)) for index in range(count)] + [failed(99)])
    return log


def line_bytes(log: TuningLog) -> list[bytes]:
    return [line.encode("ascii") for line in export_lines(log)]


def assert_same(first: TuningLog, second: TuningLog) -> None:
    assert list(first.records()) == list(second.records())
    assert list(first.workloads()) == list(second.workloads())
    assert first.targets() == second.targets()


@given(record=records())
def test_a_record_survives_json(record: TuningRecord) -> None:
    read = from_data(json.loads(json.dumps(to_data(record))))
    assert read == record
    assert digest(read) == digest(record)


@pytest.mark.endurance
@given(stored=st.lists(records(), max_size=5))
def test_a_log_survives_the_trip(stored: list[TuningRecord]) -> None:
    source, destination = memory_log(), memory_log()
    source.append(stored)
    report = import_lines(line_bytes(source), destination, any_program)
    assert report.bad == []
    assert_same(source, destination)


def test_digests_are_what_they_were_when_first_released() -> None:
    # If this fails, every log in the world would count its records as damaged.
    assert digest(timed(1, 1.0, 2.0)).hex() == "3132ba84fb66e911c6cec83eb632f450"
    assert digest(failed(1)).hex() == "97b750134280bbe5e96f3ae7509653fc"


def test_import_twice_is_import_once(tmp_path: Path) -> None:
    source, destination = sample_log(), memory_log()
    assert export_log(source, tmp_path / "log.jsonl") == 1 + 2 + 1 + 21
    first = import_log(tmp_path / "log.jsonl", destination, any_program)
    second = import_log(tmp_path / "log.jsonl", destination, any_program)
    assert (first.lines, first.targets, first.workloads, first.records, first.new_records) == (25, 2, 1, 21, 21)
    assert (second.records, second.new_records, second.bad) == (21, 0, [])
    assert_same(source, destination)


def test_many_records_are_stored_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BATCH", 4)
    source, destination = sample_log(), memory_log()
    assert import_lines(line_bytes(source), destination, any_program).new_records == 21
    assert_same(source, destination)


def test_merge_twice_is_merge_once(tmp_path: Path) -> None:
    source = sample_log()
    destination = open_log(tmp_path / "tuning.db")
    destination.append([timed(3, 4.0, 2.0, when=3.0), timed(77, 1.0)])
    first, second = merge(source, destination, any_program), merge(source, destination, any_program)
    assert (first.records, first.new_records) == (21, 20)
    assert (second.records, second.new_records) == (21, 0)
    assert len(list(destination.records())) == 22
    assert destination.workload(KEY.task) == '{"program": "é"}'
    assert destination.targets() == source.targets()
    destination.close()


def test_bad_lines_are_located_and_good_ones_kept() -> None:
    lines = line_bytes(sample_log())
    lines[5] = lines[5][:-20] + b"\n"
    lines[7] = lines[7].replace(b'"seed\\":1', b'"seed\\":2').replace(b'"seed":1', b'"seed":2')
    lines[9] = b"\xff\xfe garbage\n"
    lines[10] = b"\n"
    lines[11] = b"[]\n"
    lines[12] = b"[" * 100_000 + b"\n"
    log = memory_log()
    report = import_lines(lines, log, any_program)
    assert [bad.number for bad in report.bad] == [6, 8, 10, 12, 13]
    assert "checksum does not match" in report.bad[1].reason
    assert report.new_records == len(list(log.records())) == 21 - 6


def checked_line(kind: str, body: object) -> bytes:
    return json.dumps({"kind": kind, "body": body, "digest": content_hash(body).hex()}).encode()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("record", {}),
        ("record", 7),
        ("record", to_data(timed(1, 1.0)) | {"latencies_s": []}),
        ("record", to_data(timed(1, 1.0)) | {"latencies_s": [-1.0]}),
        ("record", to_data(timed(1, 1.0)) | {"config": "{}"}),
        ("record", to_data(timed(1, 1.0)) | {"error": ["x"]}),
        ("record", to_data(timed(1, 1.0)) | {"seed": "many"}),
        ("record", to_data(timed(1, 1.0)) | {"when": 10**400}),
        ("record", to_data(timed(1, 1.0)) | {"task": 7}),
        ("record", to_data(timed(1, 1.0)) | {"from_the_future": 7}),
        ("target", {"kind": "toaster"}),
        ("target", {"kind": "llvm", "isa": "avx2", "threads": "two"}),
        ("target", []),
        ("workload", {"task": 7, "program": ""}),
        ("header", {"format": "one"}),
        ("recipe", {}),
        (["record"], {}),
    ],
)
def test_a_sound_checksum_does_not_excuse_nonsense(kind: str, body: object) -> None:
    log = memory_log()
    report = import_lines([checked_line(kind, body)], log, any_program)
    assert [bad.number for bad in report.bad] == [1]
    assert not list(log.records())
    assert not log.targets()


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(LogError, match=r"line 1 .* format 2.*upgrade"):
        import_lines([checked_line("header", {"format": 2})], memory_log(), any_program)


def test_a_line_without_end_is_not_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LONGEST_LINE_BYTES", 2000)
    good = checked_line("record", to_data(timed(1, 1.0))) + b"\n"
    for endless in (b"x" * 2001, b"x" * 9000, b"x" * 4002):
        stream = io.BytesIO(good + endless + b"\n" + good + endless)
        lines = list(bounded_lines(stream))
        assert max(map(len, lines)) <= 2001
        report = import_lines(lines, memory_log(), any_program)
        assert ([bad.number for bad in report.bad], report.records) == ([2, 4], 2)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot be imported"):
        import_log(tmp_path / "missing.jsonl", memory_log(), any_program)
    with pytest.raises(LogError, match="cannot be exported"):
        export_log(sample_log(), tmp_path / "missing" / "log.jsonl")


def test_a_failed_export_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("old")
    log = sample_log()
    monkeypatch.setattr(log, "records", lambda: (_ for _ in ()).throw(LogError("damaged")))
    with pytest.raises(LogError, match="damaged"):
        export_log(log, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def mutated(line: bytes, rng: random.Random) -> bytes:
    """``line`` after one to three random injuries; still one line."""
    body = bytearray(line.rstrip(b"\n"))
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(body) + 1)
        match rng.randrange(6):
            case 0:
                body[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                del body[place : place + rng.randint(1, 30)]
            case 2:
                body[place:place] = rng.choice(
                    [b'"', b"{", b"}", b"[", b",", b"\\", b"\\u0000", b"1e999", b"NaN", b" "]
                )
            case 3:
                body[place:place] = rng.randbytes(rng.randint(1, 20))
            case 4:
                del body[place:]
            case _:
                start = rng.randrange(len(body) + 1)
                body[place:place] = body[start : start + rng.randint(1, 60)]
    return bytes(body).replace(b"\n", b" ") + b"\n"


def check_mutated_lines(count: int, seed: int) -> None:
    rng = random.Random(seed)
    source = sample_log()
    source.append(
        [timed(1, 3.0, key=other_key(task="t\ud800\x00")), dataclasses.replace(timed(2, 1.0), trace="[[]]" * 9)]
    )
    originals = set(map(repr, source.records()))
    good = line_bytes(source)
    for _ in range(count // 10):
        lines = list(good)
        injured = set(rng.sample(range(len(lines)), 10))
        for index in injured:
            lines[index] = mutated(lines[index], rng)
        log = memory_log()
        report = import_lines(lines, log, any_program)
        kept = set(map(repr, log.records()))
        assert {bad.number - 1 for bad in report.bad} <= injured
        assert kept <= originals  # what was injured is left out, or means the same as before
        untouched = [line for index, line in enumerate(lines) if index not in injured]
        alone = memory_log()
        import_lines(untouched, alone, any_program)
        assert set(map(repr, alone.records())) <= kept
        assert report.records + report.targets + report.workloads + len(report.bad) >= len(lines) - 1 - 10


def check_mutated_files(count: int, seed: int) -> None:
    rng = random.Random(seed)
    source = sample_log()
    originals = set(map(repr, source.records()))
    whole = b"".join(line_bytes(source))
    log = memory_log()  # one for all files: whatever any of them brings must be among the originals
    for _ in range(count):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            place = rng.randrange(len(damaged))
            damaged[place : place + rng.choice([0, 1, 1, 500])] = rng.randbytes(rng.choice([0, 1, 1, 40]))
        import_lines(bounded_lines(io.BytesIO(bytes(damaged))), log, any_program)
        assert set(map(repr, log.records())) <= originals


@pytest.mark.endurance
def test_mutated_lines() -> None:
    check_mutated_lines(1000, seed=1)


@pytest.mark.endurance
def test_mutated_files() -> None:
    check_mutated_files(100, seed=2)


@pytest.mark.slow
def test_ten_thousand_mutations() -> None:
    check_mutated_lines(10_000, seed=3)
    check_mutated_files(10_000, seed=4)
