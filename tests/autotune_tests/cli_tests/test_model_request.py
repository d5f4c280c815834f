"""A request becomes the options of a run, and a command may have some of its fields only."""

import inspect
from pathlib import Path

import pytest

from autotune.cli.arguments import taking
from autotune.cli.model_request import BUILD, LOOK_UP, ModelRequest
from autotune.cli.reply import Reply
from autotune.options import Options
from schedules.vocabulary.errors import UsageError


def test_a_request_is_read_into_options():
    request = ModelRequest(
        Path("m.onnx"), budget="1m30s", until="5%", threads=2, inputs=["x:1x8"], seed=7, lanes="auto", log="t.db"
    )
    options = request.options()
    assert (options.budget_s, options.until, options.threads, options.inputs) == (90.0, 0.05, 2, {"x": (1, 8)})
    assert (options.seed, options.lanes, options.log, options.frozen) == (7, "auto", "t.db", False)
    assert options.peer


def test_a_run_may_be_left_to_its_budget():
    assert ModelRequest(Path("m.onnx"), until="never").options().until == 0.0


def test_what_nobody_asked_for_is_as_in_options():
    assert ModelRequest(Path("m.onnx"), quiet=True).options() == Options()


@pytest.mark.parametrize("quiet_or_frozen", [{"quiet": True}, {"frozen": True}])
def test_the_reference_engine_is_not_timed_in_silence_or_frozen(quiet_or_frozen):
    assert not ModelRequest(Path("m.onnx"), **quiet_or_frozen).options().peer


def test_several_shapes_of_an_input_are_sets():
    options = ModelRequest(Path("m.onnx"), inputs=["x:{1,8}x4"]).options()
    assert [dict(shapes) for shapes in options.shapes] == [{"x": (1, 4)}, {"x": (8, 4)}]


def test_threads_of_the_command_beat_those_of_the_target():
    target = '{"threads": 4}'
    assert ModelRequest(Path("m.onnx"), target=target).options().threads == 4
    assert ModelRequest(Path("m.onnx"), target=target, threads=2).options().threads == 2


@pytest.mark.parametrize("wrong", [{"searcher": "randm"}, {"cost_model": "x"}, {"allocator": "x"}, {"evaluator": "x"}])
def test_unknown_strategies_are_refused(wrong):
    with pytest.raises(UsageError, match="choose one of"):
        ModelRequest(Path("m.onnx"), **wrong).options()


@pytest.mark.parametrize("names", [LOOK_UP, BUILD])
def test_a_command_has_the_fields_it_names_in_the_order_of_the_request(names):
    @taking(ModelRequest, *names)
    def command(request):
        return Reply([str(request.model)], {"seed": request.seed})

    parameters = list(inspect.signature(command).parameters)
    assert set(parameters) == set(names)
    assert parameters == [name for name in inspect.signature(ModelRequest).parameters if name in names]
    assert command(model=Path("m.onnx")).data == {"seed": Options.seed}
