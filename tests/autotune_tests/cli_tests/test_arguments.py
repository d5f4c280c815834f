"""Help of options names strategies that exist."""

import pytest

from autotune.cli import arguments as opt


@pytest.mark.parametrize("kind", opt.NAMES)
def test_help_names_strategies_that_exist(kind):
    named = set(opt.NAMES[kind].removesuffix(" and others").split(", "))
    known = set(opt.strategies(kind))
    assert named <= known
    assert named == known or opt.NAMES[kind].endswith(" and others")
