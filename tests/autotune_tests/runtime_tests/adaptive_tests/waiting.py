"""Waiting for another thread or process."""

import time
from collections.abc import Callable

import pytest

PATIENCE_S = 300.0


def wait_for(is_so: Callable[[], object]) -> None:
    """Wait until ``is_so``, but not for ever."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > end:
            pytest.fail("it has not happened")
        time.sleep(0.01)
