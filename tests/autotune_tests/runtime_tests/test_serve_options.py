"""ServeOptions: what makes no sense is refused."""

import numpy as np
import pytest

from autotune.runtime.serve_options import ServeOptions, time_limit
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize("field", ["streams", "max_queue", "max_batch"])
def test_counts_are_at_least_one(field):
    with pytest.raises(UsageError, match=f"{field} is 0; it must be at least 1"):
        ServeOptions(**{field: 0})


def test_a_wait_is_not_negative():
    with pytest.raises(UsageError, match="max_wait_s is -1"):
        ServeOptions(max_wait_s=-1)


@pytest.mark.parametrize("field", ["streams", "max_queue", "max_batch"])
@pytest.mark.parametrize("value", [1.5, "2", float("nan")])
def test_counts_are_whole_numbers(field, value):
    with pytest.raises(UsageError, match=rf"{field} is {value!r}; it must be at least 1, and a whole number"):
        ServeOptions(**{field: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, "1", None, 10**400])
def test_a_wait_is_a_number_of_seconds(value):
    with pytest.raises(UsageError, match=r"max_wait_s is .*; it must be zero or more seconds"):
        ServeOptions(max_wait_s=value)


@pytest.mark.parametrize("value", [None, float("inf"), 1e300, 10**400, 1e15])
def test_a_limit_beyond_all_limits_is_none(value):
    assert time_limit(value) is None


@pytest.mark.parametrize("value", [0, 0.5, 3, True, np.float32(2)])
def test_a_time_limit_is_kept(value):
    assert time_limit(value) == value


@pytest.mark.parametrize("value", [-1, -1e-9, float("nan"), float("-inf"), "1", [1], 1j, -(10**400)])
def test_a_time_limit_that_is_none_is_told(value):
    with pytest.raises(UsageError, match=r"timeout_s is .*; it must be zero or more seconds, or None for no limit"):
        time_limit(value)


def test_defaults_leave_streams_to_the_artifact():
    assert ServeOptions().streams is None
    assert ServeOptions().max_batch == 1
