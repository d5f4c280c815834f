"""A session's limits on tuning, and the values that are refused."""

import pytest

from autotune.runtime.adaptive.adapt import Adapt
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize(("until", "remaining"), [("3%", 0.03), ("0%", 0.0), (0.1, 0.1), ("0.5", 0.5), (0, 0.0)])
def test_shares_are_read(until, remaining):
    assert Adapt(until=until).remaining == pytest.approx(remaining)


@pytest.mark.parametrize("until", ["100%", "much", "-1%", 1, None, True, float("nan"), "%"])
def test_what_is_no_remaining_share_is_refused(until):
    with pytest.raises(UsageError, match=r"until is .*; it must be a share below 1"):
        Adapt(until=until)


@pytest.mark.parametrize("share", [0, -1, 1.5, "half", None, True, float("nan")])
def test_what_is_no_share_of_the_cpu_is_refused(share):
    with pytest.raises(UsageError, match=r"cpu_share is .*; it must be above 0 and at most 1"):
        Adapt(cpu_share=share)
