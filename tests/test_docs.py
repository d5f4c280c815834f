"""What the guides tell people to type works, and the generated pages are up to date."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from autotune.cli.main import main
from schedules.vocabulary import errors
from tests.autotune_tests.fakes import fake_device
from tests.conftest import keep_code
from tests.docs.api import page
from tests.docs.errors import PROVOCATIONS
from tests.docs.errors import page as page_of_errors
from tests.models import cached
from tests.test_readme import ROOT, blocks, commands, quick

DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"


def script(folder, text, *arguments):
    """Run ``text`` as a script in a process of its own."""
    (folder / "script.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{EXAMPLES}"}
    done = subprocess.run(
        [sys.executable, "script.py", *arguments],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=140,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tutored(tmp_path_factory):
    """A folder in which every command of the tutorial was run, and what each said."""
    folder = tmp_path_factory.mktemp("tutorial")
    shutil.copy(cached("tiny_mlp"), folder / "model.onnx")
    said = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        keep_code(folder / "cache")
        patch.delenv("TUNE_LOG", raising=False)
        patch.chdir(folder)
        for line in commands((DOCS / "tutorial.md").read_text(), "tune"):
            extra = ["--rounds", "1"] if line[1] == "bench" else []
            said[" ".join(line[1:3])] = main([*quick(line[1:]), *extra])
    return folder, said


def test_every_command_of_the_tutorial_works(tutored):
    folder, said = tutored
    assert set(said.values()) == {0}, said
    assert {words.split()[0] for words in said} >= {"run", "report", "export", "kernels", "bench", "log", "build"}
    assert (folder / "report.html").stat().st_size > 10_000


def test_the_event_stream_tells_the_run(tutored):
    lines = [json.loads(line) for line in (tutored[0] / "events.jsonl").read_text().splitlines()]
    kinds = [line["event"] for line in lines]
    assert kinds[0] == "phase"
    assert kinds[-1] == "result"
    assert (
        kinds.index("tuning_began") < kinds.index("slot_began") < kinds.index("slot_done") < kinds.index("tuning_ended")
    )
    assert [line["t"] for line in lines] == sorted(line["t"] for line in lines)
    assert sum(line.get("measured", 0) for line in lines) == lines[-1]["measured_trials"]
    assert all(line["why"] for line in lines if line["event"] == "slot_began")


def test_the_python_of_the_tutorial_works(tutored):
    (program,) = blocks((DOCS / "tutorial.md").read_text(), "python")
    script(tutored[0], program + "\nassert len(outputs) == len(session.get_outputs())\n")


@pytest.mark.parametrize(("name", "count"), [("extending", 1), ("extending-search", 2), ("extending-machines", 3)])
def test_the_worked_examples_of_extending_work(tmp_path, name, count):
    examples = blocks((DOCS / f"{name}.md").read_text(), "python")
    assert len(examples) == count
    script(tmp_path, "\n".join(examples))


def test_the_example_server_answers_and_says_what_would_be_right(tutored):
    serving = "import sys; sys.path.insert(0, sys.argv[1]); from server import make_server"
    assert script(tutored[0], serving, str(EXAMPLES)) == ""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from server import make_server
    finally:
        sys.path.remove(str(EXAMPLES))
    with make_server(tutored[0] / "model.tuned", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            about = json.load(urllib.request.urlopen(address))
            (wanted,) = about["inputs"]
            value = 0.5
            for extent in reversed(wanted["shape"]):
                value = [value] * extent
            answer = json.load(urllib.request.urlopen(f"{address}/run", json.dumps({wanted["name"]: value}).encode()))
            assert list(answer) == [output["name"] for output in about["outputs"]]
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"{address}/run", json.dumps({wanted["name"] + "x": value}).encode())
            assert f"did you mean {wanted['name']!r}?" in json.load(caught.value)["error"]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_the_hand_written_function_is_tuned(tmp_path):
    environment = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        assert "GFLOPS" in script(tmp_path, (EXAMPLES / "handwritten.py").read_text(), "3")


def test_the_python_reference_is_up_to_date():
    assert (DOCS / "api.md").read_text() == page(), "docs/api.md is out of date; run 'make docs'"


def test_the_python_reference_names_everything_with_words():
    import autotune

    text = page()
    for name in autotune.__all__:
        assert f"`autotune.{name}`" in text or f"| `{name}` |" in text
    assert not re.search(r"```\n\n\n", text), "something has no docstring"


def _public(body, prefix=""):
    """(name, function) of every public function and method."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _public(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield f"{prefix}{node.name}", node


def _raised(function):
    """Our errors that its own lines raise."""
    calls = [node.exc for node in ast.walk(function) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)} & set(vars(errors))


@pytest.mark.parametrize("room", ["autotune", "search", "costmodels", "schedules", "tuning_logs"])
def test_every_public_function_says_what_it_raises(room):
    silent = []
    for path in (ROOT / room).rglob("*.py"):
        if "cli" in path.parts or path.stem.endswith("_command"):
            continue  # a command's docstring is its help
        for name, function in _public(ast.parse(path.read_text()).body):
            text = ast.get_docstring(function) or ""
            as_another = re.search(r"\b[Aa]s (?:in )?``|\b[Ss]ee ``|^(?:Implement|Work like) ``", text)
            untold = {error for error in _raised(function) if error not in text}
            if untold and not as_another and "AutotuneError" not in text:  # that there is one at all is ruff's rule
                silent.append(f"{path.relative_to(ROOT)}: {name} {sorted(untold)}")
    assert silent == []


def test_the_golden_list_of_errors_says_what_the_program_says(tmp_path, monkeypatch):
    """Every refusal is one line and a failing exit code, and the list has it word for word ('make docs' renews it).

    Nothing is measured, so no run starts processes before it refuses; those of ``make docs`` do.
    """
    keep_code(tmp_path / "cache")
    fake_device(monkeypatch, forks=True)
    said = page_of_errors(tmp_path)
    blocks_said = said.split("```console\n")[1:]
    assert len(blocks_said) == sum(map(len, PROVOCATIONS.values()))
    for block in blocks_said:
        command, *lines = block.split("```")[0].strip().splitlines()
        complaint, code = lines
        assert complaint.startswith("tune: "), command
        assert code in ("[exit code 1]", "[exit code 2]", "[exit code 3]"), command
    assert said == (ROOT / "tests/golden/errors.md").read_text()
