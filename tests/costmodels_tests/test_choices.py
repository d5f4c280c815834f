from __future__ import annotations

import sys

import pytest

from costmodels.choices import choose, did_you_mean, lazy
from schedules.errors import UsageError


def test_a_wrong_name_names_the_nearest_and_lists_all() -> None:
    known = {"random": 1, "greedy": 2}
    assert choose("searcher", "greedy", known) == 2
    with pytest.raises(
        UsageError, match=r"unknown searcher 'rondom'; did you mean 'random'\? choose one of greedy, ran"
    ):
        choose("searcher", "rondom", known)


def test_a_name_with_a_colon_is_imported() -> None:
    assert choose("searcher", "fractions:Fraction", {})(1, 4) == 0.25
    for name in ("fractions:Friction", "no_module_of_this_name:A", "a b:c"):
        with pytest.raises(UsageError, match="give module:name"):
            choose("searcher", name, {})


def test_nothing_similar_gives_no_question() -> None:
    assert did_you_mean("zzz", ["random"]) == ""
    assert did_you_mean("rndm", ["random"], least=0.95) == ""


def test_a_lazy_factory_imports_when_it_is_called() -> None:
    sys.modules.pop("colorsys", None)
    make = lazy("fractions:Fraction", denominator=4)
    missing = lazy("colorsys:nothing_of_this_name")
    assert "colorsys" not in sys.modules
    assert make(1) == 0.25
    with pytest.raises(AttributeError):
        missing()
    assert "colorsys" in sys.modules
