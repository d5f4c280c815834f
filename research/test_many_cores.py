"""Cells of the table of many cores: which are run, what they ask of the command line, and what the table says."""

from __future__ import annotations

import json
import sys

import pytest

from research import many_cores
from research.gpu.steps import Step, run_steps


def test_cells_that_this_machine_cannot_run_are_left_out() -> None:
    names = [step.name for step in many_cores.cells(("a", "b"), (16, 4, 8, 2), 0, 8)]
    assert names == ["a-4", "b-4", "a-8", "b-8", "a-2", "b-2"]
    (step,) = many_cores.cells(("a",), (2,), 10, 2)
    assert (step.name, step.seconds) == ("a-2-10s", many_cores.CELL_S + 10)
    assert step.arguments[-2:] == ("--budget", "10")


def test_every_model_has_a_cell_on_sixteen_cores() -> None:
    steps = many_cores.cells(many_cores.NINE, many_cores.THREADS, 0, 16)
    assert len(steps) == len({step.name for step in steps}) == 9 * 4


def test_a_cell_tunes_and_times_on_its_threads(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    asked: list[tuple[str, ...]] = []

    def answer(*arguments: str) -> dict[str, object]:
        asked.append(arguments)
        engines = [{"name": "tune", "p50_ms": 1.0}, {"name": "onnxruntime", "p50_ms": 2.0}]
        return {"threads": 4, "engines": engines, "speedup": {"onnxruntime": 2.0}}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(many_cores, "_tune", answer)
    monkeypatch.setattr(many_cores, "cached", lambda name: tmp_path / f"{name}.onnx")
    row = many_cores.cell("tiny", 4, 0)
    assert [command[0] for command in asked] == ["run", "bench"]
    assert "--threads 4" in " ".join(asked[0])
    assert row == {
        "model": "tiny",
        "threads": 4,
        "ms": {"tune": 1.0, "onnxruntime": 2.0},
        "speedup": {"onnxruntime": 2.0},
    }


def test_the_table_has_the_cells_that_succeeded(tmp_path) -> None:
    row = {"model": "m", "threads": 2, "ms": {"tune": 1.0, "onnxruntime": 1.5}, "speedup": {"onnxruntime": 1.5}}
    said = f"print('loading'); print({json.dumps(row)!r})"
    steps = (Step("m-2", 20, ("-c", said), ""), Step("n-2", 20, ("-c", "raise SystemExit(3)"), ""))
    assert sys.executable
    assert run_steps(tmp_path, 60.0, steps) == 1
    cells = many_cores.rows(tmp_path, steps)
    assert cells == [row]
    head, line = many_cores.lines(cells)
    assert head.split()[:2] == ["model", "threads"]
    assert line.split() == ["m", "2", "1.000", "1.500", "1.50"]
