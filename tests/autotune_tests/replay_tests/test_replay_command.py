from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.cli.main import main


def test_the_command_prints_and_plots(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = path.with_suffix(".html")
    names = ["--evaluator", "adaptive,fixed", "--cost-model", "boosted", "--allocator", "round-robin,expected-cut"]
    code = main(["replay", str(path), *names, "--seeds", "2", "--processes", "1", "--plot", str(page), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["traces"], told["seeds"], len(told["tables"])) == (0, ["toy"], 2, 3)
    assert "Allocators" in page.read_text()


def test_the_command_names_what_is_wrong(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(path), "--searcher", "rondom"]) == 2
    assert "did you mean 'random'" in capsys.readouterr().err
    assert main(["replay", str(path), "--near", "7"]) == 2
    assert "share between 0 and 1" in capsys.readouterr().err
