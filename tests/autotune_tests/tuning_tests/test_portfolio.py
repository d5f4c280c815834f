"""Several models under one budget, with a measurer that makes its numbers up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune.artifact.directory import read_artifact
from autotune.artifact.known_models import remembered_model
from autotune.builder import one_lane
from autotune.events import SlotDone, TuningBegan, ignore
from autotune.importer.guarded_import import import_model
from autotune.measure import local_measurer
from autotune.options import Options
from autotune.tuning import tune as tuning
from autotune.tuning.part import joined
from autotune.tuning.run_history import read_history
from schedules.vocabulary.errors import AutotuneError, UsageError
from tests.autotune_tests.fakes import FakeMeasurer, if_it_lowers
from tests.autotune_tests.tiny import save_tiny, target
from tests.models import save


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """Two models with one convolution in common and a product of their own."""
    return [save_tiny(tmp_path / "a.onnx"), save_tiny(tmp_path / "b.onnx", seed=1, classes=12)]


@pytest.fixture
def measurers(monkeypatch: pytest.MonkeyPatch) -> list[FakeMeasurer]:
    """Every measurer that the pipeline opened."""
    opened: list[FakeMeasurer] = []

    def start(*_: object, **__: object) -> FakeMeasurer:
        opened.append(FakeMeasurer(if_it_lowers))
        return opened[-1]

    monkeypatch.setattr(local_measurer, "LocalMeasurer", start)
    monkeypatch.setattr(one_lane, "median_s", lambda *_: 1e-3)
    return opened


def options(tmp_path: Path, **changes: Any) -> Options:
    chosen = {"out": tmp_path / "made", "log": tmp_path / "t.db", "threads": 1, "searcher": "random", "trials": 8}
    return Options(**{**chosen, "batch": 2, **changes})


def test_models_share_a_budget_and_kernels_and_get_an_artifact_each(
    tmp_path: Path, models: list[Path], measurers: list[FakeMeasurer]
) -> None:
    events: list[object] = []
    result = autotune.tune(models, options(tmp_path, weights={"a": 3}), events.append)
    assert len(measurers) == 1
    assert [part.artifact for part in result.parts] == [tmp_path / "made" / "a.tuned", tmp_path / "made" / "b.tuned"]
    assert [part.verified.passed for part in result.parts if part.verified] == [True, True]
    (began,) = [event for event in events if isinstance(event, TuningBegan)]
    kernels = [{task.key for task in import_model(model, {}, target())[1].tasks} for model in models]
    assert result.tasks == len(kernels[0] | kernels[1]) < len(kernels[0]) + len(kernels[1])
    weight = {state.key: state.weight for state in began.states}
    assert {weight[key] for key in kernels[0] & kernels[1] & set(weight)} == {4}
    assert {weight[key] for key in (kernels[0] - kernels[1]) & set(weight)} == {3}
    assert result.measured_trials == 8 == sum(event.measured for event in events if isinstance(event, SlotDone))
    assert sum(part.measured_trials for part in result.parts) > 8  # the shared kernel's count for both
    assert result.latency_ms == {"untuned": 4.0, "tuned": 4.0}
    for model, part in zip(models, result.parts, strict=True):
        session = autotune.InferenceSession(part.artifact)
        feed = {"data": np.zeros((1, 16, 8, 8), np.float32)}
        assert session.run(None, feed)[0].shape == (1, 10 if model.stem == "a" else 12)
        assert remembered_model(read_artifact(part.artifact).provenance["sha256"]) == model.resolve()
        (run,) = read_history(part.artifact)
        own = {task.key: task.weight for task in import_model(model, {}, target())[1].tasks}
        assert {slot.task for slot in run.slots} <= set(own)
        assert {task.task: task.weight for task in run.tasks}.items() <= own.items()


def test_a_second_run_goes_on_from_the_log_and_a_build_needs_nothing_else(
    tmp_path: Path, models: list[Path], measurers: list[FakeMeasurer]
) -> None:
    first = tuning.tune(models, options(tmp_path))
    again = tuning.tune(models, options(tmp_path))
    assert (again.measured_trials, again.reused_records) == (0, first.measured_trials)
    built = tuning.build(models, options(tmp_path, out=tmp_path / "built"))
    assert [part.measured_trials for part in built.parts] == [0, 0]
    assert (tmp_path / "built" / "b.tuned" / "model.so").is_file()


def test_json_has_a_list_of_models(tmp_path: Path, models: list[Path], measurers: list[FakeMeasurer]) -> None:
    data = tuning.tune(models, options(tmp_path, weights={"b": 2})).to_data()
    assert [(part["model"], part["weight"]) for part in data["models"]] == [("a.onnx", 1), ("b.onnx", 2)]
    assert data["model"] == "a.onnx, b.onnx"
    assert data["remaining_gain"] is not None
    assert data["phase_s"]["build"] == pytest.approx(sum(part["phase_s"]["build"] for part in data["models"]))
    assert data["phase_s"]["search"] == data["models"][0]["phase_s"]["search"]


def test_the_shape_of_an_input_goes_to_the_models_that_have_it(
    tmp_path: Path, models: list[Path], measurers: list[FakeMeasurer]
) -> None:
    result = tuning.tune(models, options(tmp_path, inputs={"data": (1, 16, 8, 8)}))
    assert len(result.parts) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights": {"c": 2}}, "--weight c=2 names no model"),
        ({"inputs": {"dat": (1, 2)}}, "did you mean 'data'"),
    ],
)
def test_what_does_not_fit_several_models_is_refused(
    tmp_path: Path, models: list[Path], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        tuning.tune(models, options(tmp_path, **changes))


@pytest.mark.parametrize("changes", [{"lanes": "cpu:2x1", "threads": 2}, {"objective": "balanced", "threads": 2}])
def test_models_with_parts_of_their_own_share_the_budget_in_turn(
    tmp_path: Path, models: list[Path], measurers: list[FakeMeasurer], changes: dict[str, Any]
) -> None:
    result = tuning.tune(models, options(tmp_path, weights={"a": 3}, **changes))
    assert [part.artifact for part in result.parts] == [tmp_path / "made" / "a.tuned", tmp_path / "made" / "b.tuned"]
    assert all(part.verified.passed for part in result.parts if part.verified)
    assert result.weights == (3, 1)
    assert result.measured_trials == sum(part.measured_trials for part in result.parts)


def test_each_of_several_models_gets_the_shapes_of_its_own_inputs(
    tmp_path: Path, models: list[Path], measurers: list[FakeMeasurer]
) -> None:
    save("tiny_open_batch", tmp_path / "c.onnx")
    sets = tuple({"data": (1, 16, 8, 8), "rows": (rows, 24)} for rows in (1, 8))
    result = tuning.tune([models[0], tmp_path / "c.onnx"], options(tmp_path, shapes=sets))
    assert [len(part.parts) for part in result.parts] == [0, 2]
    feed = {"rows": np.zeros((5, 24), np.float32)}
    assert autotune.InferenceSession(result.parts[1].artifact).run(None, feed)[0].shape == (5, 10)


def test_models_of_one_name_are_refused(tmp_path: Path, models: list[Path]) -> None:
    with pytest.raises(UsageError, match="2 of the models are called a"):
        tuning.tune([models[0], tmp_path / "elsewhere" / "a.onnx"], options(tmp_path))


@pytest.mark.parametrize(("count", "said"), [(0, "no model was given"), (1, "compares models, and there is one")])
def test_weights_need_several_models(tmp_path: Path, models: list[Path], count: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tuning.tune(models[:count], options(tmp_path, weights={"a": 2}))


def test_a_model_that_cannot_be_imported_ends_the_run_before_anything_is_measured(
    tmp_path: Path, models: list[Path], measurers: list[FakeMeasurer]
) -> None:
    (tmp_path / "c.onnx").write_bytes(b"no model")
    with pytest.raises(AutotuneError, match=r"c\.onnx"):
        tuning.tune([*models, tmp_path / "c.onnx"], options(tmp_path), ignore)
    assert not measurers[0].slots
    assert not (tmp_path / "t.db").exists()
    assert not list((tmp_path / "made").iterdir())


def test_joined_tasks_keep_the_order_of_one_program(models: list[Path]) -> None:
    _, program = import_model(models[0], {}, target())
    assert joined([(program, 1)]).tasks == program.tasks
