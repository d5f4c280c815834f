"""What an option's text means: times, shares, targets, names."""

import pytest

from autotune.cli.parsing import MOST_COUNT, parse_count, parse_seconds, parse_target, parse_weights, split_names, typed
from schedules.target import Target
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1m30s", 90),
        ("2h", 7200),
        ("1h1m1s", 3661),
        ("60", 60),
        ("0.5", 0.5),
        ("1.5s", 1.5),
        ("2ms", 2e-3),
    ],
)
def test_budgets(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-5s", "5x", "s", "m", "5 m", "1s1m", "inf", "nan", "1e400", "٣s1x"])
def test_bad_budgets_are_told_what_to_write(text):
    with pytest.raises(UsageError, match="90s, 5m or 1m30s"):
        parse_seconds(text)


def test_weights():
    assert parse_weights(["a=3", "b.onnx=1", "x=y=2"]) == {"a": 3, "b": 1, "x=y": 2}


@pytest.mark.parametrize("text", ["", "a", "=3", "a=", "a=0", "a=-1", "a=0.5", "a=x"])
def test_bad_weights_are_told_what_to_write(text):
    with pytest.raises(UsageError, match="--weight a=3"):
        parse_weights([text])


def test_one_model_has_one_weight():
    with pytest.raises(UsageError, match="weight 3 already"):
        parse_weights(["a=3", "a=4"])


def test_targets():
    assert parse_target("host") == {}
    assert parse_target('{"isa": "avx2"}') == {"isa": "avx2"}
    for text in ("{", "[]", '{"arch": "sm_90"}'):
        with pytest.raises(UsageError, match="avx2"):
            parse_target(text)


def test_a_processor_of_the_table_is_a_target():
    assert parse_target('{"cpu": "neoverse-n2", "threads": 4}') == {"target": Target.cpu("neoverse-n2", 4)}
    for text in ('{"cpu": "neoverse-n2", "threads": "4"}', '{"cpu": 2}', '{"cpu": "haswell", "isa": "avx2"}'):
        with pytest.raises(UsageError, match='with "cpu" and "threads"'):
            parse_target(text)
    with pytest.raises(UsageError, match="'z80': unknown"):
        parse_target('{"cpu": "z80"}')


def test_cuda_targets():
    assert parse_target('{"kind": "cuda", "arch": "sm_80"}') == {"target": Target.cuda("sm_80")}
    assert parse_target('{"kind": "cuda", "arch": "sm_90", "multiprocessors": 114}')["target"].threads == 114
    for text in ('{"kind": "cuda"}', '{"kind": "cuda", "arch": "sm_90", "isa": "avx2"}'):
        with pytest.raises(UsageError, match="sm_90"):
            parse_target(text)
    with pytest.raises(UsageError, match="sm_86"):
        parse_target('{"kind": "cuda", "arch": "sm_50"}')


def test_names_are_split_at_commas():
    assert split_names("a, b,") == ["a", "b"]
    assert split_names("") == []


def test_what_was_typed_is_repeated_as_a_shell_takes_it():
    assert [typed("--budget", text) for text in ("soon", "", "a b")] == [
        "--budget soon",
        "--budget ''",
        "--budget 'a b'",
    ]


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("007", 7), (str(MOST_COUNT), MOST_COUNT), ("٤", 4)])
def test_counts(text, count):
    assert parse_count(text, "--clients") == count


@pytest.mark.parametrize("text", ["", "0", "000", "-1", "1.0", "x", "²", str(MOST_COUNT + 1), "9" * 5000])
def test_what_is_no_count_is_refused(text):
    with pytest.raises(UsageError, match=r"--clients .*: not a whole number from 1 to 1048576; write for example 4"):
        parse_count(text, "--clients")
