"""Errors of code that is not ours."""

import pytest

from autotune.host.third_party import ThirdPartyError, third_party
from schedules.errors import ModelError


def test_any_error_is_one_line_and_keeps_its_cause():
    with pytest.raises(ThirdPartyError, match=r"^first$") as caught, third_party():
        raise IndexError("first\nsecond")
    assert isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize("error", [ModelError("ours"), KeyboardInterrupt()])
def test_our_own_errors_and_interrupts_pass(error):
    with pytest.raises(type(error)), third_party():
        raise error
