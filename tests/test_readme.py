"""What the documents tell people to type works, and the generated pages are up to date."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from autotune.cli.main import main
from tests.conftest import keep_code
from tests.docs.figures import COLUMNS, with_figures
from tests.docs.panels import with_panels
from tests.models import cached

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(text, language):
    """The lines of every fenced block of ``language``."""
    return [match.group(1) for match in re.finditer(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def commands(text, program):
    """Every command line of ``program`` in the shell blocks."""
    lines = [line for block in blocks(text, "sh") for line in block.splitlines() if line.strip()]
    return [shlex.split(line) for line in lines if line.startswith(f"{program} ")]


def quick(arguments):
    """The same command with a budget for a tiny model."""
    return [{"60s": "2s"}.get(argument, argument) for argument in arguments]


def test_the_first_commands_are_make_tune_and_make_test():
    assert blocks(README, "sh")[0].splitlines() == ["make tune", "make test"]


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_make_targets_exist(page):
    for command in commands((ROOT / page).read_text(), "make"):
        done = subprocess.run(["make", "-n", *command[1:]], cwd=ROOT, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_install_commands_name_extras_that_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = commands(README, "pip")
    assert lines
    for command in lines:
        assert command[1] == "install"
        assert set(re.findall(r"\[(\w+)\]", command[2])) <= set(extras)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with a model.onnx, and a home of its own."""
    shutil.copy(cached("tiny_mlp"), tmp_path / "model.onnx")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep_code(tmp_path / "cache")
    monkeypatch.delenv("TUNE_LOG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_tune_command_of_the_readme_works(workplace, capsys):
    lines = commands(README, "tune")
    assert {line[1] for line in lines} >= {"run", "bench", "tasks", "kernels", "verify", "log", "devices", "build"}
    for line in lines:
        extra = ["--rounds", "1"] if line[1] == "bench" else []
        assert main([*quick(line[1:]), *extra]) == 0, (line, capsys.readouterr().err)
    assert (workplace / "model.tuned" / "manifest.json").exists()
    assert (workplace / "built.tuned" / "manifest.json").exists()


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone of the last commit."""
    folder = tmp_path_factory.mktemp("clone") / "tune"
    done = subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this is no git checkout: {done.stderr.strip()}")
    return folder


def shell(command, folder, *programs):
    """Run one line as a new user's shell would: nothing of this checkout, and ``programs`` first on the path."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TUNE_LOG", "VIRTUAL_ENV")}
    homes = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("DATA", "CACHE")}
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    environment = {**kept, **homes, "PATH": path}
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.mark.slow
def test_make_tune_works_in_a_fresh_clone(clone):
    said = shell("make tune", clone, Path(sys.executable).parent)
    assert "outputs match onnxruntime" in said
    assert (clone / "squeezenet.tuned" / "manifest.json").exists()


@pytest.mark.slow
def test_from_a_clone_to_a_tuned_model_of_one_s_own(clone, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv" / "bin"
    for command in commands(README, "pip"):
        pinned = f"{shlex.join(command)} --quiet --constraint constraints.txt"
        shell(pinned, clone, programs)
    workplace = tmp_path / "work"
    workplace.mkdir()
    shutil.copy(cached("tiny_mlp"), workplace / "model.onnx")
    for command in commands(README, "tune"):
        shell(shlex.join(quick(command)), workplace, programs)
    (program,) = blocks(README, "python")
    (workplace / "script.py").write_text(program.replace("budget_s=60", "budget_s=2"))
    shell("python script.py", workplace, programs)


def test_the_python_of_the_readme_works(workplace):
    (program,) = blocks(README, "python")
    script = program.replace("budget_s=60", "budget_s=2") + "\nassert len(outputs) == len(session.get_outputs())\n"
    # As a script: workers must not depend on how the caller was started.
    (workplace / "script.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "script.py"], check=False, capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_the_command_line_reference_is_up_to_date(tmp_path):
    done = subprocess.run(["make", "-n", "-B", "docs"], cwd=ROOT, check=True, capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if "utils docs" in line)
    arguments = shlex.split(line.replace("docs/cli.md", str(tmp_path / "cli.md")))
    subprocess.run([sys.executable, "-m", "typer", *arguments[1:]], cwd=ROOT, check=True, capture_output=True)
    page = (ROOT / "docs" / "cli.md").read_text()
    assert page == with_panels((tmp_path / "cli.md").read_text()), "docs/cli.md is out of date; run 'make docs'"
    assert page.count("**Where kernels run**:") >= 2


def test_the_figures_are_those_of_the_benchmarks():
    renewed = with_figures(README, (ROOT / "docs" / "benchmarks.md").read_text())
    assert renewed == README, "the table of README.md is out of date; run 'make docs'"
    assert len(re.findall(r"^\|.*\*\*\d", README, re.MULTILINE)) >= 3


def test_the_default_precision_is_compared_with_openvino_s_default():
    sums = ["- fp32: 2 times as fast", "- the default of `tune run`, against OpenVINO's default: 0.5 times as fast"]
    table = [f"| {' | '.join(('model', *COLUMNS))} |", "|---|", "| mlp | 9 | 2 | 1 | 4 | 3 | 1 |"]
    page = "\n".join(["<!-- bench:begin -->", *table, "", *sums, "<!-- bench:end -->"])
    assert "\n".join(sums) in with_figures(README, page)
    assert "- fp32, the default of `tune run`, against OpenVINO's default: " in README
