"""ServeOptions: what makes no sense is refused."""

import pytest

from autotune.runtime.serve_options import ServeOptions
from schedules.errors import UsageError


@pytest.mark.parametrize("field", ["streams", "max_queue", "max_batch"])
def test_counts_are_at_least_one(field):
    with pytest.raises(UsageError, match=f"{field} is 0; it must be at least 1"):
        ServeOptions(**{field: 0})


def test_a_wait_is_not_negative():
    with pytest.raises(UsageError, match="max_wait_s is -1"):
        ServeOptions(max_wait_s=-1)


def test_defaults_leave_streams_to_the_artifact():
    assert ServeOptions().streams is None
    assert ServeOptions().max_batch == 1
