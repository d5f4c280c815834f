"""A miss is told in words: which field differs, and how."""

from dataclasses import replace

import pytest

from schedules.target import Target
from tests.tuning_logs_tests.samples import AVX2, AVX512, KEY, other_key
from tuning_logs.explain import KeyCount, explain_miss
from tuning_logs.record import RecordKey

HERE = other_key(target=AVX2.fingerprint)
KNOWN = {target.fingerprint: target for target in (AVX2, AVX512)}


def told(*present: RecordKey, key: RecordKey = HERE, targets: dict[str, Target] = KNOWN) -> str:
    return explain_miss(key, {other: KeyCount(2, {}) for other in present}, targets)


def test_an_unknown_task() -> None:
    assert told() == "the log has no record of task f00d: it was never measured, or its program changed"
    assert explain_miss(HERE, {HERE: KeyCount(0, {})}, {}) == told()


def test_a_differing_target_is_taken_apart() -> None:
    there = other_key(target=AVX512.fingerprint)
    assert told(there) == (
        f"the log has 2 records of this task for target {AVX512.fingerprint}: isa differs: avx512 there, avx2 here"
    )


def test_every_differing_field_of_the_target_is_named() -> None:
    far = replace(AVX2, threads=64, mcpu="", features=("+amx-tile", "+x"), l3_bytes=1)
    there = other_key(target=far.fingerprint)
    sentence = told(there, targets=KNOWN | {far.fingerprint: far})
    assert "mcpu differs: none there, sapphirerapids here" in sentence
    assert "threads differs: 64 there, 2 here" in sentence
    assert "features differs: +amx-tile,+x there, none here" in sentence
    assert "l3_bytes" not in sentence


def test_an_undescribed_target_is_named_whole() -> None:
    assert told(other_key(target="elsewhere")).endswith(
        f"target elsewhere: target differs: elsewhere there, {AVX2.fingerprint} here"
    )


@pytest.mark.parametrize(("field", "value"), [("space", "conv2d/2"), ("tvm", "0.28.0")])
def test_other_fields(field: str, value: str) -> None:
    there = replace(HERE, **{field: value})
    assert told(there).endswith(f"{field} differs: {value} there, {getattr(HERE, field)} here")


def test_the_nearest_key_is_told_and_the_others_are_counted() -> None:
    near = replace(HERE, tvm="0.28.0")
    far = replace(HERE, tvm="0.28.0", space="conv2d/2", target=AVX512.fingerprint)
    sentence = told(far, near)
    assert "tvm differs" in sentence
    assert "space differs" not in sentence
    assert "and 1 further combination of target" in sentence


def test_failures_alone_are_counted_by_kind() -> None:
    sentence = explain_miss(HERE, {HERE: KeyCount(0, {"timeout": 3, "compile_error": 1})}, {})
    assert sentence.endswith(
        "4 records of this task for target " + HERE.target + ", but all failed: 1 compile_error, 3 timeout"
    )


def test_no_miss() -> None:
    assert told(HERE).startswith("nothing is missing: the log has 2 timed records")


def test_one_record_is_singular() -> None:
    sentence = explain_miss(KEY, {replace(KEY, tvm="1"): KeyCount(1, {})}, {})
    assert sentence.startswith("the log has 1 record of this task")
