"""Wrong flags, names, shapes and paths: every answer is one line, names the fix, and makes nothing."""

import pytest

from autotune.cli import main
from tests.autotune_tests.tiny import save_tiny


@pytest.fixture
def told(tmp_path, monkeypatch, capsys):
    """``told(arguments…)`` → (exit code, the one line on stderr) in a folder with a model."""
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "tiny.onnx")

    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("tune: ")
        assert said.err.count("\n") == 1
        return code, said.err

    return call


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["tasks", "tiny.onnx", "--input", "dat:1x16x8x8"], "did you mean 'data'?"),
        (["tasks", "tiny.onnx", "--input", "data:1x16x8"], "has 3 dimensions"),
        (["tasks", "tiny.onnx", "--input", "data:1x17x8x8"], "does not fit"),
        (["tasks", "tiny.onnx", "--input", "data"], "--input data:1x3x224x224"),
        (["tasks", "tiny.onnx", "--thread", "2"], "--threads"),
        (["run", "tiny.onnx", "--cost-model", "bosted"], "did you mean 'boosted'?"),
        (["run", "tiny.onnx", "--evaluator", "fixt"], "did you mean 'fixed'?"),
        (["run", "tiny.onnx", "--budget", "-1s"], "90s, 5m or 1m30s"),
        (["run", "tiny.onnx", "--events", "no/such/folder/events"], "name another --events"),
        (["reprt", "m.tuned"], "Did you mean 'report'"),
        (["kernels", "m.tuned", "--emt", "asm"], "--emit"),
    ],
)
def test_usage(told, arguments, hint):
    code, said = told(*arguments)
    assert code == 2
    assert hint in said


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["report", "gone.tuned"], "tune run MODEL"),
        (["export", "gone.tuned"], "tune run MODEL"),
        (["kernels", "gone.tuned", "--explain"], "tune run MODEL"),
        (["report", "tiny.onnx"], "tune run MODEL"),
    ],
)
def test_paths(told, arguments, hint, tmp_path):
    code, said = told(*arguments)
    assert code == 1
    assert hint in said
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.onnx"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--task", "fused_convd"], "did you mean 'fused_conv"),
        (["--task", "0000000000"], "'tune kernels ARTIFACT' lists them"),
        (["--emit", "llmv"], "did you mean 'llvm'?"),
        (["--explain", "--emit", "asm"], "leave out --task and --emit"),
    ],
)
def test_kernels(told, tiny_built, arguments, hint):
    code, said = told("kernels", tiny_built.artifact, *arguments)
    assert code == 2
    assert hint in said


def test_an_input_s_name_is_guessed_in_python_too(tiny_built):
    import numpy as np

    from autotune.runtime import InferenceSession
    from schedules.errors import UsageError

    session, x = InferenceSession(tiny_built.artifact), np.zeros((1, 16, 8, 8), np.float32)
    with pytest.raises(UsageError, match=r"no input 'date'; did you mean 'data'\?"):
        session.run(None, {"data": x, "date": x})
    with pytest.raises(UsageError, match=r"no output 'score'; did you mean 'scores'\?"):
        session.run(["score"], {"data": x})
    with pytest.raises(UsageError, match=r"built for \(1, 16, 8, 8\) and float32"):
        session.run(None, {"data": x[0]})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown(shell, capsys, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    with pytest.raises(SystemExit) as ended:  # typer's own exit
        main(["--show-completion", shell])
    assert ended.value.code == 0
    assert "tune" in capsys.readouterr().out
