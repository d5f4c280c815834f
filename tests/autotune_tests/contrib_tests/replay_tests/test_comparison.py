from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from autotune.cli.main import main
from autotune.contrib.replay.comparison import Replay, ReplayRules
from schedules.vocabulary.errors import UsageError

T = TypeVar("T")


def test_outcomes_lie_by_name_and_place_one_for_each_seed(path: Path) -> None:
    board = Replay([path], ReplayRules(seeds=3, trials=8, processes=1))
    assert [board.label(place) for place in board.tasks()] == ["toy/0", "toy/1"]
    by_name = board.outcomes("searcher", board.tasks(), ["random"])
    assert {place: len(outcomes) for place, outcomes in by_name["random"].items()} == {(0, 0): 3, (0, 1): 3}


@pytest.mark.endurance
def test_two_processes_find_what_one_finds(path: Path) -> None:
    by_processes = [
        Replay([path], ReplayRules(seeds=2, trials=8, processes=processes)).outcomes("evaluator", [(0, 0)], ["time"])
        for processes in (1, 2)
    ]
    assert by_processes[0] == by_processes[1]


def test_processes_end_with_a_command_that_is_killed() -> None:
    trace = Path(__file__).parents[4] / "research" / "traces" / "avx2" / "conv1x1.npz"
    arguments = ["replay", str(trace), "--searcher", "adaptive", "--seeds", "500"]
    command = subprocess.Popen([sys.executable, "-m", "autotune", *arguments], stdout=subprocess.DEVNULL)
    workers = wait_for(lambda: workers_of(command.pid))
    command.kill()
    command.wait()
    wait_for(lambda: not workers & workers_of(None))


def workers_of(parent: int | None) -> set[int]:
    """Processes that were spawned, by ``parent`` or by anyone."""
    workers = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            spawned = "spawn_main" in (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        if spawned and parent in (None, above):
            workers.add(int(folder.name))
    return workers


def wait_for(condition: Callable[[], T]) -> T:
    """The result of ``condition`` once it is true; an error after a minute."""
    end = time.monotonic() + 60.0
    while not (result := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return result


def test_no_file_is_refused() -> None:
    with pytest.raises(UsageError, match="no trace given"):
        Replay([], ReplayRules())


def test_the_command_prints_and_plots(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = path.with_suffix(".html")
    names = ["--evaluator", "adaptive,fixed", "--cost-model", "boosted", "--allocator", "round-robin,share-per-second"]
    code = main(["replay", str(path), *names, "--seeds", "2", "--processes", "1", "--plot", str(page), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["traces"], told["seeds"], len(told["tables"])) == (0, ["toy"], 2, 3)
    assert "Allocators" in page.read_text()


def test_the_command_names_what_is_wrong(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(path), "--searcher", "rondom"]) == 2
    assert "did you mean 'random'" in capsys.readouterr().err
    assert main(["replay", str(path), "--near", "7"]) == 2
    assert "not a percentage between 0 and 100" in capsys.readouterr().err
