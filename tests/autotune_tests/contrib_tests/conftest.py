"""The fixtures of the command line's tests."""

from tests.autotune_tests.cli_tests.conftest import answer, faked  # noqa: F401
