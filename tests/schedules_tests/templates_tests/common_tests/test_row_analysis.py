"""Which functions are computed row by row."""

from __future__ import annotations

import pytest
from tvm import relax

from schedules.templates.common.row_analysis import rows_of
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import from_relax


@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (relax.op.matmul, [(8, 16), (16, 32)]),
        (lambda x, w: relax.op.nn.conv2d(x, w), [(1, 8, 6, 6), (4, 8, 1, 1)]),
        (lambda x, w: relax.op.nn.conv2d(x, w, padding=1), [(1, 8, 6, 6), (4, 8, 3, 3)]),
        (lambda x: relax.op.nn.avg_pool2d(x, (2, 2), (2, 2)), [(1, 8, 6, 6)]),
        (lambda x: relax.op.argmax(x, -1), [(4, 16)]),
        (lambda x: relax.op.sum(x), [(300, 400)]),
        (lambda x: relax.op.sum(x, [1]), [(1, 20_000)]),
        (lambda x: relax.op.nn.softmax(x, 1), [(2, 6, 5, 3)]),
        (relax.op.nn.relu, [(4, 4)]),
        (lambda x: relax.op.sum(relax.op.reshape(x, (1, 1)), [1]), [()]),
    ],
)
def test_rows_leaves_to_others_what_they_do_better(build: object, sizes: list) -> None:
    assert rows_of(from_relax(build, *sizes)) is None


def test_softmax_reduces_across_and_a_blocked_mean_along() -> None:
    by_name = {case.name: rows_of(case.func) for case in CASES if case.template == "rows"}
    softmax, mean = by_name["rows_softmax"], by_name["rows_blocked_mean"]
    assert (softmax.across, softmax.rows, softmax.length) == (True, 15, 48)
    assert (mean.across, mean.rows, mean.length) == (False, 6, 16)


def test_squares_beside_a_mean_are_summed_row_by_row() -> None:
    """The mean has as many axes as the data; what it is subtracted from tells the direction."""

    def squares(mean: relax.Expr, x: relax.Expr) -> relax.Expr:
        distance = relax.op.subtract(mean, x)
        return relax.op.sum(relax.op.multiply(distance, distance), [2, 3], keepdims=True)

    rows = rows_of(from_relax(squares, (1, 6, 1, 1), (1, 6, 8, 16)))
    assert rows is not None
    assert (rows.across, rows.rows, rows.length) == (True, 6, 128)
