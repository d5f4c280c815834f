"""The words of a program: what the core reads at their end of rows that may be left out."""

from dataclasses import replace

from autotune.backends.cpu.program_words import program_words
from autotune.graph.steps import CallJobs, Condition, LiveRows, LiveSizes, Operand, Step, Steps

GIVEN, MADE, LAST = (Operand(place, at, (4, 3), "float32") for place, at in (("input", 0), ("arena", 0), ("arena", 64)))
STEPS = Steps((Step("one", (GIVEN, MADE)), Step("two", (MADE, LAST))), (LAST,), 128, ())
PER_CALL = 6


def test_a_program_without_open_size_says_so():
    words = program_words(STEPS, [48]).tolist()
    assert words[-6:] == [0, 0, 0, 0, 0, 0]  # a workspace of each call, open sizes, and calls with a condition


LIVE = LiveRows("batch", 4, (CallJobs(8, 2, 4, 1, 12), CallJobs()))
SECOND = LiveRows("length", 3, (CallJobs(8, 1, 2, 2, 4, 5), CallJobs()))


def test_jobs_of_every_call_follow_the_sizes():
    words, without = program_words(STEPS, [48], LiveSizes((LIVE, SECOND))).tolist(), program_words(STEPS, [48]).tolist()
    assert words[: len(without) - 2] == without[:-2]
    first, second = [4, 8, 2, 4, 1, 1, 12, 0, 0, 0, 0, 1, 0], [3, 8, 1, 2, 2, 5, 4, 0, 0, 0, 0, 1, 0]
    assert words[len(without) - 2 :] == [2, *first, *second, 0]
    assert len(words) == len(without) + 2 * (1 + PER_CALL * len(STEPS.calls))


def test_cores_of_older_artifacts_know_one_size():
    words, without = program_words(STEPS, [48], LiveSizes((LIVE,)), False).tolist(), program_words(STEPS, [48])
    assert words[len(without) - 2 :] == [4, 8, 2, 4, 1, 12, 0, 0, 0, 0, 0, 0]
    assert program_words(STEPS, [48], None, False).tolist() == without.tolist()


def test_a_call_with_a_condition_names_it():
    chosen = replace(STEPS.calls[1], condition=Condition(Operand("input", 1, (1,), "bool"), when=False))
    words = program_words(replace(STEPS, calls=(STEPS.calls[0], chosen)), [48, 1]).tolist()
    assert words[-9:] == [1, 1, 0, 1, 1, 6, 8, 1, 1]  # how many, the call, its value, and the operand
