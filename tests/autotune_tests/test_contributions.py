"""Contributions are found by their entry points, and what wants one that is missing says which extra to install."""

import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import autotune
from autotune import contributions
from autotune.contributions import COMMANDS, EXTRAS, GROUP, OPERATORS, contributed, contribution, operator_advice
from autotune.frame.frame import Frame, HostStep
from autotune.importer.import_passes import PROGRAM
from autotune.importer.load import load_model
from autotune.importer.program import simplify
from schedules.vocabulary.errors import InstallError, UnsupportedError

ROOT = Path(autotune.__file__).parents[1]
FILES = ROOT.glob("autotune/contrib/*/pyproject.toml")
PROJECTS = {path.parent.name: tomllib.loads(path.read_text()) for path in FILES}
OURS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def nothing(monkeypatch):
    """A wheel without extras."""
    monkeypatch.setattr(contributions, "contributed", lambda name: None)


@pytest.mark.parametrize("name", EXTRAS)
def test_every_entry_point_is_declared_and_loads(name):
    assert contributed(name) is not None


def test_every_contribution_is_a_distribution_that_an_extra_of_ours_installs():
    for folder, project in PROJECTS.items():
        ours = project["project"]
        assert ours["name"] == f"tune-compiler-{folder}"
        assert ours["version"] == OURS["version"]
        assert f"tune-compiler=={OURS['version']}" in ours["dependencies"]
        for name in ours["entry-points"][GROUP]:
            assert OURS["optional-dependencies"][EXTRAS[name]] == [f"{ours['name']}=={OURS['version']}"]
    declared = [name for project in PROJECTS.values() for name in project["project"]["entry-points"][GROUP]]
    assert sorted(declared) == sorted(EXTRAS)
    assert {*COMMANDS, *OPERATORS.values()} <= EXTRAS.keys()


@pytest.mark.parametrize("name", EXTRAS)
def test_what_is_missing_names_its_extra(nothing, name):
    run = rf"pip install 'tune-compiler\[{EXTRAS[name]}\]'"
    with pytest.raises(InstallError, match=f"^x needs an extra that is not installed; run: {run}$"):
        contribution(name, "x")


def model_of(path, node, x, y, *domains):
    graph = helper.make_graph([node], "m", [x], [y])
    opsets = [helper.make_opsetid("", 20), *(helper.make_opsetid(domain, 3) for domain in domains)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def test_a_model_of_strings_names_the_extra(nothing, tmp_path):
    x, y = (helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in "xy")
    path = model_of(tmp_path / "m.onnx", helper.make_node("StringConcat", ["x", "x"], ["y"]), x, y)
    with pytest.raises(UnsupportedError, match=r"computes with strings, which needs .*tune-compiler\[strings\]"):
        simplify(load_model(path, {}))


def test_an_artifact_of_strings_names_the_extra(nothing):
    frame = Frame((), (), before=(HostStep("StringConcat", ("x", "x"), ("y",)),))
    with pytest.raises(InstallError, match=r"operator StringConcat on strings .*tune-compiler\[strings\]"):
        frame.run(frame.before, {"x": np.array(["a"], object)})


@pytest.mark.parametrize(("domain", "kind"), [("", "TfIdfVectorizer"), ("ai.onnx.ml", "Scaler")])
def test_operators_of_a_contribution_name_the_extra(nothing, domain, kind):
    assert operator_advice(domain, kind, "no") == "run: pip install 'tune-compiler[classical]'"
    assert operator_advice("", "Add", "no") == "no"


def test_operators_that_are_installed_are_not_advertised():
    assert operator_advice("ai.onnx.ml", "ZipMap", "export it without") == "export it without"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_missing_names_the_extra(command, capsys, monkeypatch):
    from autotune.cli import main as module

    monkeypatch.setattr(module.app, "registered_groups", module.app.registered_groups[: -len(COMMANDS) - 1])
    assert module.main([command]) == 1
    assert f"{command}: this command is in an extra; run: pip install 'tune-compiler[{EXTRAS[command]}]'" in (
        capsys.readouterr().err
    )


def test_import_passes_are_of_the_core():
    assert not [step for step in PROGRAM if "contrib" in step.run.__module__]
