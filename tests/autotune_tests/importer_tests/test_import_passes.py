"""Passes run in an order in which each has what it needs."""

import pytest

from autotune.importer.import_passes import PROGRAM, SIMPLIFY, Pass, run
from autotune.importer.rewriting.registry import Role

LISTS = [(SIMPLIFY, "checked", "simple"), (PROGRAM, "simple", "tasks")]


@pytest.mark.parametrize(("passes", "first", "last"), LISTS)
def test_a_list_leads_from_one_property_to_the_next(passes, first, last):
    ran = []
    noted = [Pass(step.name, step.needs, step.gives, ran.append) for step in passes]
    assert last in run(noted, "draft", first)
    assert ran == ["draft"] * len(passes)


@pytest.mark.parametrize(("passes", "first"), [pair[:2] for pair in LISTS])
def test_a_pass_that_is_left_out_or_comes_late_is_missed_before_anything_runs(passes, first):
    """Only the last pass is needed by none; every other has a reader that refuses to run without it."""
    ran = []
    noted = [Pass(step.name, step.needs, step.gives, ran.append) for step in passes]
    for step in noted[:-1]:
        others = [other for other in noted if other is not step]
        for order in (others, [*others, step]):
            with pytest.raises(ValueError, match="which no pass before it gives"):
                run(order, "draft", first)
    assert not ran


def test_every_role_of_the_registry_names_a_pass():
    names = {step.name for step in (*SIMPLIFY, *PROGRAM)}
    assert {role.value.split(",")[0] for role in Role} <= names
