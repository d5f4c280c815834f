"""``python -m autotune``: Ctrl-C while the command line is being loaded."""

from __future__ import annotations

import builtins
from pathlib import Path

from autotune import __main__ as entry


def test_ctrl_c_while_it_is_loaded_is_one_line(monkeypatch, capsys):
    real = builtins.__import__

    def interrupted(name, *arguments, **named):
        if name == "autotune.cli.main":
            raise KeyboardInterrupt
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    assert entry.main() == 130
    assert capsys.readouterr().err == "tune: interrupted\n"


def test_otherwise_it_is_the_command(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.setattr("sys.argv", ["tune", "kernels", str(tmp_path)])
    assert entry.main() == 1
    assert "is not an artifact" in capsys.readouterr().err
