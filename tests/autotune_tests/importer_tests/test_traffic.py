"""Sets of shapes for recorded sizes: every call has a set that it fits into, and sets save padding."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.importer.traffic import (
    ATTENTION_POSITIONS,
    CALL_POSITIONS,
    CLEARED_POSITIONS,
    MOST_POSITIONS,
    WORTH,
    read_traffic,
    sets_of,
)
from schedules.vocabulary.errors import UsageError

CALLS = st.lists(
    st.tuples(st.tuples(st.integers(1, 8), st.integers(1, 64)), st.integers(1, 1000)), min_size=1, max_size=20
)


def traffic_of(calls):
    return [({"ids": shape, "mask": shape}, count) for shape, count in calls]


def fits(call, shapes):
    """Whether a set serves a call, of whose batch it may be a part."""
    return all(size <= room for name in call for size, room in zip(call[name][1:], shapes[name][1:], strict=True))


@given(CALLS, st.integers(1, 12))
def test_every_call_fits_into_a_set_and_shares_add_up(calls, most):
    sets = sets_of(traffic_of(calls), most)
    assert 1 <= len(sets) <= most
    assert math.isclose(sum(share for _, share in sets), 1.0)
    assert all(any(fits(call, shapes) for shapes, _ in sets) for call, _ in traffic_of(calls))


def test_sets_are_where_the_traffic_is():
    lengths = {16: 5000, 40: 4000, 120: 50, 128: 30, 512: 3}
    sets = sets_of(traffic_of([((1, length), count) for length, count in lengths.items()]))
    assert [shapes["ids"] for shapes, _ in sets][:2] == [(1, 32), (1, 64)]
    assert sets[-1][0]["ids"] == (1, 512)
    assert max(sets, key=lambda pair: pair[1])[0]["ids"] in {(1, 32), (1, 64)}


def test_a_size_that_saves_little_gets_no_set():
    calls = [((1, 100), 1000), ((1, 99), 1000)]
    assert [shapes["ids"] for shapes, _ in sets_of(traffic_of(calls))] == [(1, 100)]
    assert WORTH > 0.005


def test_short_sequences_have_sets_of_several_rows():
    calls = [((batch, length), 10) for batch in (1, 2, 32) for length in (16, 64, 512)]
    sets = sets_of(traffic_of(calls))
    assert [shapes["ids"] for shapes, _ in sets] == [(1, 512), (8, 64)]
    short = 35 * (16 * (1 + 64 / ATTENTION_POSITIONS) + CLEARED_POSITIONS * (64 - 16))
    middle, long = 35 * 64 * (1 + 64 / ATTENTION_POSITIONS), 35 * 512 * (1 + 512 / ATTENTION_POSITIONS)
    work = {64: 2 * 6 * CALL_POSITIONS + short + middle, 512: 35 * CALL_POSITIONS + long}
    assert {shapes["ids"][1]: share for shapes, share in sets} == pytest.approx(
        {length: own / sum(work.values()) for length, own in work.items()}
    )


def test_positions_that_are_computed_in_any_case_have_more_sets():
    calls = traffic_of([((1, length), 10) for length in range(8, 129, 8)])
    assert len(sets_of(calls)) < len(sets_of(calls, mixed=True))


@given(CALLS, st.integers(1, 12))
def test_calls_that_cannot_be_cut_have_sets_that_serve_some(calls, most):
    sets = sets_of(traffic_of(calls), most, whole=True)
    assert 1 <= len(sets) <= most
    assert math.isclose(sum(share for _, share in sets), 1.0)
    for shapes, _ in sets:
        assert any(fits(call, shapes) and call["ids"][0] <= shapes["ids"][0] for call, _ in traffic_of(calls))


def test_calls_that_cannot_be_cut_have_sets_of_one_row_and_of_many():
    calls = [((batch, length), 10) for batch in (1, 32) for length in (16, 120, 512)]
    chosen = [shapes["ids"] for shapes, _ in sets_of(traffic_of(calls), whole=True)]
    assert {(1, 512), (32, 32), (32, 128)} <= set(chosen)
    assert max(batch * length for batch, length in chosen) <= MOST_POSITIONS  # ONNX Runtime runs 32 x 512


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ((3, 37, 77), {32, 64, 96}),
        ((16000, 32100), {16000, 32128}),
    ],
)
def test_lengths_of_sequences_are_rounded(lengths, expected):
    calls = traffic_of([((2, length), 10) for length in lengths])
    assert {shapes["ids"][1] for shapes, _ in sets_of(calls, limits={512, 384})} == expected


@pytest.mark.parametrize("limits", [(), (77,), (90, 512)])
def test_the_longest_may_be_all_that_a_table_of_positions_has(limits):
    sets = sets_of(traffic_of([((2, length), 10) for length in (3, 37, 77)]), limits=limits)
    assert max(shapes["ids"][1] for shapes, _ in sets) == 77


@pytest.mark.parametrize("shape", [(3, 100, "size"), (3, "size", "size"), (80, "size")])
def test_images_and_signals_are_rows_of_the_very_size(shape):
    def sized(batch, size):
        return (batch, *(size if axis == "size" else axis for axis in shape))

    sets = sets_of([({"x": sized(batch, size)}, 10) for batch in (1, 2) for size in (100, 250)])
    assert [shapes["x"] for shapes, _ in sets] == [sized(1, 100), sized(1, 250)]


def test_batches_alone_have_sets_of_their_own():
    sets = sets_of(traffic_of([((batch, 24), 10) for batch in (1, 8)]))
    assert [shapes["ids"] for shapes, _ in sets] == [(1, 24), (8, 24)]


def test_first_sizes_that_differ_are_no_batch():
    sets = sets_of([({"query": (rows, 8), "text": (2, length)}, 1) for rows in (1, 9) for length in (16, 64)], 4)
    assert {shapes["query"] for shapes, _ in sets} == {(1, 8), (9, 8)}


def test_calls_with_several_open_sizes_are_covered_by_the_largest_of_each():
    sets = sets_of(traffic_of([((8, 16), 1), ((1, 512), 1)]), 1)
    assert [shapes["ids"] for shapes, _ in sets] == [(1, 512)]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "[1]", '[{"shapes": {"x": [0]}, "count": 1}]', '[{"shapes": {"x": [true]}, "count": 1}]',
     '[{"shapes": {"x": [1267650600228229401496703205376]}, "count": 1}]',
     '[{"shapes": {"x": [1]}}]', '[{"shapes": {"x": [1]}, "count": -1}]', '[{"shapes": [1], "count": 1}]',
     '[{"shapes": {"x": [1]}, "count": 1}, {"shapes": {"y": [1]}, "count": 1}]',
     '[{"shapes": {"x": [1]}, "count": 1}, {"shapes": {"x": [1, 1]}, "count": 1}]'],
)  # fmt: skip
def test_a_file_of_another_form_is_refused(tmp_path, text):
    path = tmp_path / "sizes.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"^--sizes .*sizes\.json: "):
        read_traffic(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_traffic(tmp_path / "none.json")


def test_a_file_is_what_a_session_returns(tmp_path):
    path = tmp_path / "sizes.json"
    path.write_text(json.dumps([{"shapes": {"ids": [1, 40]}, "count": 3}]))
    assert read_traffic(path) == [({"ids": (1, 40)}, 3)]
