"""The words of a program: what the core reads at their end of rows that may be left out."""

from dataclasses import replace

from autotune.backends.cpu.program_words import MORE_WORDS, program_words
from autotune.graph.steps import CallJobs, Condition, LiveRows, LiveSizes, Operand, Step, Steps
from autotune.interface import Growth

GIVEN, MADE, LAST = (Operand(place, at, (4, 3), "float32") for place, at in (("input", 0), ("arena", 0), ("arena", 64)))
STEPS = Steps((Step("one", (GIVEN, MADE)), Step("two", (MADE, LAST))), (LAST,), 128, ())
PER_CALL = 6


def test_a_program_without_open_size_says_so():
    words = program_words(STEPS, [48]).tolist()
    # A workspace of each call, open sizes, calls with a condition, and those that follow a size in another way.
    assert words[-7:] == [0, 0, 0, 0, MORE_WORDS, 0, 0]


LIVE = LiveRows("batch", 4, (CallJobs(8, 2, 4, 1, 12), CallJobs()))
SECOND = LiveRows("length", 3, (CallJobs(8, 1, 2, 2, 4, 5), CallJobs()))


def test_jobs_of_every_call_follow_the_sizes():
    words, without = program_words(STEPS, [48], LiveSizes((LIVE, SECOND))).tolist(), program_words(STEPS, [48]).tolist()
    assert words[: len(without) - 3] == without[:-3]
    first, second = [4, 8, 2, 4, 1, 1, 12, 0, 0, 0, 0, 1, 0], [3, 8, 1, 2, 2, 5, 4, 0, 0, 0, 0, 1, 0]
    assert words[len(without) - 3 :] == [2 + MORE_WORDS, *first, *second, 0, 0]
    assert len(words) == len(without) + 2 * (1 + PER_CALL * len(STEPS.calls))


def test_cores_of_older_artifacts_know_one_size():
    words = program_words(STEPS, [48], LiveSizes((LIVE,)), False, False).tolist()
    without = program_words(STEPS, [48], None, False, False).tolist()
    assert words[len(without) - 2 :] == [4, 8, 2, 4, 1, 12, 0, 0, 0, 0, 0, 0]
    assert without[-2:] == [0, 0]  # no open size, and no call with a condition, which cores after 0.5.0 read


def test_rows_that_grow_otherwise_are_named_with_two_steps():
    grown = CallJobs(8, 2, 4, 1, growth=Growth().then(1, 1, 2).then(4), loop=3)
    words = program_words(STEPS, [48], LiveSizes((replace(LIVE, calls=(CallJobs(), grown)),))).tolist()
    assert words[-10:] == [1, 1, 0, 3, 1, 1, 2, 4, 0, 1]  # how many, the call, the size, the loop, and the steps


def test_a_call_with_a_condition_names_it():
    chosen = replace(STEPS.calls[1], condition=Condition(Operand("input", 1, (1,), "bool"), when=False))
    words = program_words(replace(STEPS, calls=(STEPS.calls[0], chosen)), [48, 1]).tolist()
    assert words[-10:-1] == [1, 1, 0, 1, 1, 6, 8, 1, 1]  # how many, the call, its value, and the operand
