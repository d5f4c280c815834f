"""The fastest candidate that computes the right outputs is taken."""

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from autotune.artifact.plan import Plan
from autotune.builder import accuracy
from autotune.builder.accuracy import LEVELS, Built, first_that_passes
from autotune.validation.verdict import Verdict
from schedules.lower import EXACT, MOST_LOSSY
from schedules.vocabulary.errors import VerificationError
from tests.autotune_tests.tiny import target

OUT = Path("out.tuned")
MODEL = onnx.ModelProto()
RIGHT = Verdict("reference", 0.0, 0.0, passed=True)
PLAN = Plan(target(), ())


def candidates(*names):
    return (Built(Path(name), PLAN) for name in names)


@pytest.fixture(autouse=True)
def compared(monkeypatch):
    """Artifacts whose names begin with ``wrong`` do not pass; the names of those that were compared."""
    seen = []

    def compare(path, model, seed, _server):
        seen.append(path.name)
        return replace(RIGHT, passed=not path.name.startswith("wrong"))

    monkeypatch.setattr(accuracy, "compare_isolated", compare)
    return seen


def test_the_first_that_passes_is_taken_and_no_other_is_compared(compared, caplog):
    passed = first_that_passes(OUT, MODEL, 0, candidates("wrong", "right", "slow"))
    assert passed.artifact.path == Path("right")
    assert passed.verdict.passed
    assert passed.verify_s >= 0.0
    assert compared == ["wrong", "right"]
    assert "built again of other kernels" in caplog.text
    assert "report" not in caplog.text


def test_it_fails_by_name_if_none_passes(caplog):
    with pytest.raises(VerificationError, match=r"out\.tuned.*report"):
        first_that_passes(OUT, MODEL, 0, candidates("wrong", "wrong too"))
    assert len(caplog.records) == 1


def test_no_candidates_are_no_failure():
    assert first_that_passes(OUT, MODEL, 0, candidates()) is None


def test_levels_end_with_the_exact_one():
    assert (LEVELS[0], LEVELS[-1]) == (MOST_LOSSY, EXACT)
