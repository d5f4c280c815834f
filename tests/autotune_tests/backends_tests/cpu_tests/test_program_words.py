"""The words of a program: what the core reads at their end of rows that may be left out."""

import pytest

from autotune.backends.cpu.program_words import program_words
from autotune.graph.steps import CallJobs, LiveRows, Operand, Step, Steps

GIVEN, MADE, LAST = (Operand(place, at, (4, 3), "float32") for place, at in (("input", 0), ("arena", 0), ("arena", 64)))
STEPS = Steps((Step("one", (GIVEN, MADE)), Step("two", (MADE, LAST))), (LAST,), 128, ())
PER_CALL = 5


def test_a_program_without_open_size_says_so():
    words = program_words(STEPS, [48]).tolist()
    assert words[-5:] == [0, 0, 0, 0, 0]  # a workspace of each call, and the rows


@pytest.mark.parametrize("row_bytes", [0, 12])
def test_jobs_of_every_call_follow_the_rows(row_bytes):
    live = LiveRows("batch", 4, (CallJobs(8, 2, 4, 1, row_bytes), CallJobs()))
    words, without = program_words(STEPS, [48], live).tolist(), program_words(STEPS, [48]).tolist()
    assert words[: len(without) - 1] == without[:-1]
    assert words[len(without) - 1 :] == [4, 8, 2, 4, 1, row_bytes, 0, 0, 0, 0, 0]
    assert len(words) == len(without) + PER_CALL * len(STEPS.calls)
