"""The pictures of the README: the report in a real browser, the live table as a terminal shows it."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from rich.console import Console

from autotune.artifact.directory import read_tasks
from autotune.events import Event, SlotBegan, SlotDone, TuningBegan
from autotune.report.page import write_report
from autotune.report.progress import Progress
from autotune.tuning.run_history import Run, read_history
from schedules.task import Task
from search.allocators.allocation import TaskState
from tests.chromium import Chromium, find_browser

COLUMNS, LINES = 118, 22
SHARE = 0.6
"""How much of the run the live table has seen."""


def draw(artifact: Path, out: Path) -> list[Path]:
    """Write the pictures of ``artifact`` to the folder ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    program = find_browser()
    if program is None:
        raise SystemExit("no Chromium or Chrome is installed; apt-get install chromium, then 'make screenshots'")
    made = [live_table(artifact, out / "live.svg")]
    with tempfile.TemporaryDirectory() as folder, Chromium(program) as browser:
        page = write_report(artifact, Path(folder) / "report.html")
        for name, width, height, dark in (("report", 1040, 1120, False), ("report-phone", 390, 1180, True)):
            browser.open(page, width, height, dark)
            browser.shoot(out / f"{name}.png")
            made.append(out / f"{name}.png")
    return made


def live_table(artifact: Path, out: Path) -> Path:
    """What ``tune run`` showed at some point of the artifact's first run, when nothing was known before."""
    run = read_history(artifact)[0]
    tasks = {task.key: task for task in read_tasks(artifact)[0]}
    now = 0.0

    def clock() -> float:
        return now

    shown = run.slots[: max(1, int(len(run.slots) * SHARE))]
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=COLUMNS, height=LINES)
    progress = Progress(console, clock=clock)
    summary = progress.summary
    for event in events(run, tasks, len(shown)):
        if isinstance(event, SlotDone):
            now = event.elapsed_s
        summary.update(event)
    console.print(progress.drawing())
    out.write_text(console.export_svg(title="tune run"))
    return out


def events(run: Run, tasks: dict[str, Task], slots: int) -> list[Event]:
    """The events of the first ``slots`` slots of a run."""
    states = {
        story.task: TaskState(
            story.task, tasks[story.task].template, story.weight, tasks[story.task].flop, story.bound_s
        )
        for story in run.tasks
    }
    told: list[Event] = [] if run.reference is None else [run.reference]
    told.append(TuningBegan(tuple(tasks[key] for key in states), tuple(states.values()), run.budget_s))
    for slot in run.slots[:slots]:
        before, count = states[slot.task], len(slot.latencies_s)
        cost_s = (slot.ended_s - slot.began_s) / max(1, count)
        state = TaskState(
            before.key,
            before.template,
            before.weight,
            before.flop,
            before.bound_s,
            before.latencies_s + slot.latencies_s,
            before.spent_s + (cost_s,) * count,
        )
        states[slot.task] = state
        told.append(SlotBegan(tasks[slot.task], count, slot.why))
        told.append(SlotDone(tasks[slot.task], state, count, len(slot.failures), slot.ended_s, slot.failures))
    return told
