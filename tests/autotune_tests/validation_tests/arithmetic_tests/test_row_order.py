"""Rows whose numbers are as good as equal."""

import numpy as np

from autotune.validation.arithmetic.row_order import rows_in_order

SCORES = np.array([0.9, 0.5, 0.5 - 1e-8, 0.2], np.float32)
LABELS = np.array([3, 1, 2, 1])
BOXES = np.arange(16, dtype=np.float32).reshape(4, 4)
GROUP = [[0, 1, 2]]


def swapped(one, other):
    """All outputs with two rows in each other's place."""
    order = list(range(4))
    order[one], order[other] = other, one
    return [array[order] for array in (BOXES, LABELS, SCORES)]


def same(ours, theirs=(BOXES, LABELS, SCORES)):
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_rows_of_one_score_are_put_in_order():
    assert same(rows_in_order(swapped(1, 2), [BOXES, LABELS, SCORES], GROUP))


def test_rows_of_different_scores_stay():
    ours = swapped(0, 1)
    assert same(rows_in_order(ours, [BOXES, LABELS, SCORES], GROUP), ours)


def test_a_wrong_row_stays_wrong():
    wrong = swapped(1, 2)
    wrong[1] = np.array([3, 1, 1, 1])
    ordered = rows_in_order(wrong, [BOXES, LABELS, SCORES], GROUP)
    assert not np.array_equal(ordered[1], LABELS)
    assert sorted(ordered[1]) == sorted(wrong[1])


def test_another_row_of_the_last_score_may_be_the_last():
    other = [BOXES.copy(), LABELS.copy(), SCORES.copy()]
    other[0][3], other[1][3] = 99, 7
    assert same(rows_in_order(other, [BOXES, LABELS, SCORES], GROUP))
    other[2][3] = 0.19
    assert rows_in_order(other, [BOXES, LABELS, SCORES], GROUP)[2][3] == np.float32(0.19)
    other[0][0] = 99
    assert not same(rows_in_order(other, [BOXES, LABELS, SCORES], GROUP))


def test_not_all_rows_of_one_score_may_be_others():
    theirs = [np.zeros((4, 2), np.float32), np.ones(4, np.float32)]
    ours = [np.full((4, 2), 9, np.float32), np.ones(4, np.float32)]
    assert same(rows_in_order(ours, theirs, [[0, 1]]), ours)


def test_strings_stay():
    names = np.array(["a", "b", "c", "d"], object)
    ours = [names[::-1], SCORES]
    assert same(rows_in_order(ours, [names, SCORES], [[0, 1]]), ours)


def test_without_scores_that_fall_nothing_moves():
    rising = [BOXES, LABELS, SCORES[::-1].copy()]
    ours = swapped(1, 2)
    assert same(rows_in_order(ours, rising, GROUP), ours)
    assert same(rows_in_order(ours[:2], [BOXES, LABELS], [[0, 1]]), ours[:2])


def test_outputs_of_other_shapes_stay():
    ours = [array[:3] for array in swapped(1, 2)]
    assert same(rows_in_order(ours, [BOXES, LABELS, SCORES], GROUP), ours)
