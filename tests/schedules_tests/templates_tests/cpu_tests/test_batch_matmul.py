"""Batched products: which equations are some."""

from __future__ import annotations

import pytest
from tvm import te

from schedules.templates.cpu.batch_matmul import batch_matmul
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize(
    ("equation", "first", "second"),
    [
        ("bmk,bnk->bnm", (2, 4, 8), (2, 16, 8)),
        ("bmk,bkn->mn", (2, 4, 8), (2, 8, 16)),
        ("bmk,bk->bm", (2, 4, 8), (2, 8)),
    ],
)
def test_equations_that_are_no_batched_product_are_refused(equation: str, first: tuple, second: tuple) -> None:
    with pytest.raises(UsageError, match="needs one m, one n and one k axis"):
        batch_matmul(te.placeholder(first), te.placeholder(second), equation, 16)
