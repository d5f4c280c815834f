"""Every template of every set keeps the protocol: a pattern that is not its own is no match."""

from __future__ import annotations

import pytest
from tvm import te

from schedules.template_sets import TEMPLATE_SETS
from schedules.templates.template import Template, unchanged
from tests.schedules_tests.programs import from_te

EVERY = [template for chosen in TEMPLATE_SETS.values() for template in chosen.templates]


def copy_of_a_vector() -> object:
    x = te.placeholder((7,), name="x")
    return from_te(x, te.compute((7,), lambda i: x[i], name="copy"))


def test_a_set_that_needs_no_change_leaves_functions_alone() -> None:
    func = copy_of_a_vector()
    assert unchanged(func) is func


@pytest.mark.parametrize("template", EVERY, ids=lambda template: template.name)
def test_a_copy_is_matched_only_by_the_templates_for_chains(template: Template) -> None:
    assert (template.match(copy_of_a_vector()) is not None) == (template.name in ("elementwise", "cuda_map"))
