"""``tune replay``: which strategies are compared, and how wrong values are answered."""

from pathlib import Path

import pytest

from autotune.contrib.replay.replay_command import ReplayRequest
from schedules.vocabulary.errors import UsageError


def test_usual_searchers_are_compared_where_none_is_named():
    assert ReplayRequest([Path("t.npz")]).strategies() == {"searcher": ["adaptive", "autotvm", "random"]}


def test_strategies_are_named_with_commas_or_all():
    asked = ReplayRequest([Path("t.npz")], searcher="random, adaptive", evaluator="all").strategies()
    assert asked["searcher"] == ["random", "adaptive"]
    assert "adaptive" in asked["evaluator"]
    assert len(asked["evaluator"]) > 1
    assert list(asked) == ["evaluator", "searcher"]


def test_an_unknown_name_is_refused():
    with pytest.raises(UsageError, match="did you mean 'random'"):
        ReplayRequest([Path("t.npz")], searcher="randm").strategies()


@pytest.mark.parametrize(
    "wrong", [("--seeds", "0"), ("--trials", "0"), ("--processes", "0"), ("--near", "500"), ("--guesses", "some")]
)
def test_bad_numbers_are_usage_errors(answer, wrong):
    code, out, err = answer("replay", "gone.npz", *wrong)
    assert (code, out) == (2, "")
    assert wrong[0] in err
