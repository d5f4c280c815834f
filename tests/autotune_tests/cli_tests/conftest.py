"""``answer``: a command in this process; ``faked``: nothing is measured."""

import pytest

from autotune.cli.main import main
from tests.autotune_tests.fakes import fake_device
from tests.autotune_tests.tiny import save_tiny


@pytest.fixture
def answer(capsys):
    """``answer(arguments…)`` → (exit code, stdout, stderr) of ``main`` in this process."""

    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def faked(monkeypatch, tmp_path):
    """No device is measured; the model is in the current folder."""
    fake_device(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return save_tiny(tmp_path / "tiny.onnx")
