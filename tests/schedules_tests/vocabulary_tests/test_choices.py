from __future__ import annotations

import sys

import pytest

from schedules.vocabulary.choices import choose, did_you_mean, edits, lazy
from schedules.vocabulary.errors import UsageError


def test_a_wrong_name_names_the_nearest_and_lists_all() -> None:
    known = {"random": 1, "greedy": 2}
    assert choose("--searcher", "greedy", known) == 2
    with pytest.raises(
        UsageError, match=r"--searcher rondom: unknown; did you mean 'random'\? choose one of greedy, ran"
    ):
        choose("--searcher", "rondom", known)


def test_a_name_with_a_colon_is_imported() -> None:
    assert choose("--searcher", "fractions:Fraction", {})(1, 4) == 0.25
    for name in ("fractions:Friction", "no_module_of_this_name:A", "a b:c"):
        with pytest.raises(UsageError, match="give module:name"):
            choose("--searcher", name, {})


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [("run", "run", 0), ("rnu", "run", 1), ("ru", "run", 1), ("fp16", "bf16", 2), ("best", "forest", 3), ("", "ab", 2)],
)
def test_edits_are_letters_inserted_deleted_replaced_or_swapped(one: str, other: str, distance: int) -> None:
    assert edits(one, other) == edits(other, one) == distance


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("zzz", "random"),
        ("none", "dynatune"),
        ("best", "forest"),
        ("fp16", "bf16"),
        ("--nonsense", "--no-peer"),
        ("a", "any"),
    ],
)
def test_nothing_similar_gives_no_question(name: str, known: str) -> None:
    assert did_you_mean(name, [known]) == ""


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("ful", "full"),
        ("hots", "host"),
        ("rnd", "random"),
        ("thruput", "throughput"),
        ("input_idz", "input_ids"),
        ("cudax", "cuda"),
    ],
)
def test_a_typing_error_and_an_abbreviation_are_recognised(name: str, known: str) -> None:
    assert did_you_mean(name, ["other", known]) == f"did you mean {known!r}? "


def test_a_lazy_factory_imports_when_it_is_called() -> None:
    sys.modules.pop("colorsys", None)
    make = lazy("fractions:Fraction", denominator=4)
    missing = lazy("colorsys:nothing_of_this_name")
    assert "colorsys" not in sys.modules
    assert make(1) == 0.25
    with pytest.raises(AttributeError):
        missing()
    assert "colorsys" in sys.modules
