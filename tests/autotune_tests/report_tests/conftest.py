"""``told``: an artifact with everything that a report can show."""

import pytest

from tests.autotune_tests.reported import make_history


@pytest.fixture
def told(tiny):
    return make_history(tiny.artifact)
