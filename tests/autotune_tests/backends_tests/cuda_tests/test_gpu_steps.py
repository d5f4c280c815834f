"""Steps for a machine with a GPU: results are kept at once, and what succeeded is not repeated."""

from __future__ import annotations

from research.gpu.placed import WAYS
from research.gpu.spaces import SPACES
from research.gpu.steps import STEPS, Step, result, run_steps


def step(name: str, code: str, seconds: float = 20.0) -> Step:
    return Step(name, seconds, ("-c", code), "it works")


def test_a_run_goes_on_where_it_was_stopped(tmp_path, capsys):
    mark = tmp_path / "mark"
    good = step("good", "print('as expected')")
    bad = step("bad", f"from pathlib import Path; p = Path({str(mark)!r}); print('tried'); assert p.exists()")
    assert run_steps(tmp_path / "kept", 60, (good, bad)) == 1
    said = capsys.readouterr().out
    assert "done" in said
    assert "FAILED" in said
    first = result(tmp_path / "kept", good)
    assert first["output"] == "as expected\n"
    mark.touch()
    assert run_steps(tmp_path / "kept", 60, (good, bad)) == 0
    assert result(tmp_path / "kept", good) == first  # was not run again


def test_a_step_is_stopped_and_what_it_printed_is_kept(tmp_path):
    slow = step("slow", "import time; print('begun', flush=True); time.sleep(60)", 2.0)
    assert run_steps(tmp_path, 60, (slow,)) == 1
    outcome = result(tmp_path, slow)
    assert "begun" in outcome["output"]
    assert "stopped after 2 s" in outcome["output"]


def test_no_step_is_begun_without_time(tmp_path, capsys):
    assert run_steps(tmp_path, 1, (step("long", "print(1)", 60),)) == 1
    assert not list(tmp_path.iterdir())
    assert "not run" in capsys.readouterr().out


def test_the_steps_take_fifteen_minutes_at_most():
    assert sum(gpu_step.seconds for gpu_step in STEPS) <= 15 * 60
    assert len({gpu_step.name for gpu_step in STEPS}) == len(STEPS)
    assert {gpu_step.arguments[-1] for gpu_step in STEPS if gpu_step.name.startswith("space-")} == set(SPACES)
    assert set(WAYS) == {"gpu", "cpu", "placed"}
