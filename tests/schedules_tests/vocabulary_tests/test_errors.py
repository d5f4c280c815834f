"""Errors form one tree, and one guard refuses illegal candidates."""

from __future__ import annotations

import inspect

import pytest

from schedules.vocabulary import errors


def test_every_error_is_an_autotune_error_and_stands_in_the_tree() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert len(kinds) > 5
    for kind in kinds:
        assert issubclass(kind, errors.AutotuneError)
        assert kind.__name__ in (errors.__doc__ or "")


def test_the_guard_raises_with_its_message() -> None:
    errors.check(1, "never")
    with pytest.raises(errors.ScheduleError, match="too wide"):
        errors.check(0, "too wide")


def test_the_last_line_of_an_error_says_what_is_wrong() -> None:
    assert errors.last_line(ValueError("Traceback\n  here\n\nno such axis\n")) == "no such axis"
    assert errors.last_line(ValueError()) == "ValueError"
