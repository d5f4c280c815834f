"""Progress on stderr: a live table on a terminal, plain lines in a pipe.

It is drawn between slots only. A thread that redraws several times a second would disturb what is being timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autotune.events import Event, PhaseBegan, ReferenceTimed, SlotBegan, SlotDone, TuningBegan, TuningEnded
from autotune.report.plain_text import escaped
from schedules.task import Task
from search.allocators.allocation import TaskState
from search.allocators.remaining import remaining_gain
from search.allocators.stopping import Limits

PLAIN_EVERY_S = 5.0
"""Seconds between two lines where there is no terminal. Heuristic: some ten lines a minute."""

BAR_CELLS = 40

_PHASES = {
    "import": "importing the model",
    "build": "building, and verifying against the reference",
    "verify": "putting the parts together, and verifying the whole",
}


class RunSummary:
    """The state of a run, summed up from its events.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._states: dict[str, TaskState] = {}
        self._start: dict[str, TaskState] = {}
        self.tasks: tuple[Task, ...] = ()
        self.budget_s = 0.0
        self.failed = 0
        self.measured = False
        self.now: SlotBegan | None = None
        self.reference: ReferenceTimed | None = None

    def update(self, event: Event) -> None:
        """Take ``event`` into account."""
        match event:
            case TuningBegan(tasks, states, budget_s):
                self.tasks, self.budget_s, self._began = tasks, budget_s, self._clock()
                self._states = {state.key: state for state in states}
                self._start = dict(self._states)
            case ReferenceTimed():
                self.reference = event
            case SlotBegan():
                self.now = event
            case SlotDone(task, state):
                self._states[task.key] = state
                self.failed += event.failed
                self.measured = True

    @property
    def elapsed_s(self) -> float:
        """Seconds since tuning began."""
        return self._clock() - self._began

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return max(0.0, self.budget_s - self.elapsed_s)

    @property
    def trials(self) -> int:
        """Trials measured in this run."""
        return sum(state.trials - self._start[key].trials for key, state in self._states.items())

    def state(self, task: Task) -> TaskState:
        """The state of ``task``."""
        return self._states[task.key]

    @property
    def untouched(self) -> int:
        """Tasks without a valid trial."""
        return sum(state.best_s is None for state in self._states.values())

    @property
    def kernels_s(self) -> float:
        """Weighted sum of the best kernels known."""
        return sum(state.weight * (state.best_s or 0.0) for state in self._states.values())

    def slowest(self, count: int) -> list[Task]:
        """Tasks in the order of their share of the model's time; those without a time first."""
        order = {task.key: rank for rank, task in enumerate(self.tasks)}

        def share(task: Task) -> tuple[bool, float, int]:
            best_s = self.state(task).best_s
            return best_s is not None, -(best_s or 0.0) * task.weight, order[task.key]

        return sorted(self.tasks, key=share)[:count]

    @property
    def remaining_s(self) -> float:
        """Seconds that more tuning may take off the model's latency at most."""
        return remaining_gain(list(self._states.values()), Limits()).high_s

    def headline(self) -> str:
        """Everything in one line."""
        return f"{self.pace()}, {self.latencies()}"

    def pace(self) -> str:
        """Time, trials, and what was not tried yet."""
        waiting = f", {self.untouched} task{'s'[: self.untouched != 1]} to come" if self.untouched else ""
        return f"{self.elapsed_s:.1f} s of {self.budget_s:.0f} s: {self.trials} trials ({self.failed} failed){waiting}"

    def latencies(self) -> str:
        """Latency of the model's kernels, of the reference engine, and what more tuning may cut."""
        timed = self.reference
        beside = "" if timed is None else f" ({timed.name} {1e3 * timed.latency_s:.3f} ms)"
        ahead = f", at most {1e3 * self.remaining_s:.3f} ms more to gain" if self.left_s > 0 and self.measured else ""
        some = f" of {len(self.tasks) - self.untouched} of {len(self.tasks)} tasks" if self.untouched else ""
        return f"best kernels{some} {1e3 * self.kernels_s:.3f} ms{beside}{ahead}"


def describe_state(task: Task, state: TaskState) -> tuple[str, str, str]:
    """(µs, GFLOPS, share of the roofline bound) of the task's best kernel."""
    if state.best_s is None:
        return "–", "–", "–"
    share = f"{100 * state.bound_s / state.best_s:.0f} %" if state.bound_s > 0 else "–"
    return f"{1e6 * state.best_s:.1f}", f"{task.flop / state.best_s / 1e9:.0f}", share


class _Display:
    """The display of something that goes on; use it as a context manager.

    Args:
        console: where to draw; its terminal decides how.
        quiet: show nothing.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _print(self, text: str) -> None:
        self._console.print(escaped(text), style="dim", markup=False, highlight=False, soft_wrap=True)

    def _draw(self, drawing: Callable[[], RenderableType]) -> bool:
        """Show ``drawing`` in place of the last one; False where there is no terminal, and it is not made."""
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return False
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(drawing(), refresh=True)
        return True

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class Progress(_Display):
    """An observer of ``tune``."""

    def __init__(self, console: Console, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(console, quiet)
        self.summary = RunSummary(clock)
        self._printed_s = 0.0

    def __call__(self, event: Event) -> None:
        """Show ``event``."""
        self.summary.update(event)
        if self._quiet:
            return
        match event:
            case PhaseBegan(name):
                self._print(_PHASES.get(name, name))
            case TuningBegan(tasks, _, budget_s):
                self._print(f"tuning {len(tasks)} tasks for {budget_s:.0f} s")
                self._draw(self.drawing)
            case ReferenceTimed(name, version, latency_s):
                self._print(f"{name} {version} takes {1e3 * latency_s:.3f} ms on the same threads")
            case SlotBegan():
                self._draw(self.drawing)
            case SlotDone():
                if not self._draw(self.drawing):
                    self._print_slot(event)
            case TuningEnded(reason):
                self._stop()
                self._print(f"{self.summary.headline()}; stopped: {reason}")

    def _print_slot(self, event: SlotDone) -> None:
        """A line of the last slot, where the last line is some seconds old."""
        summary = self.summary
        if summary.elapsed_s - self._printed_s < PLAIN_EVERY_S:
            return
        self._printed_s = summary.elapsed_s
        best_us, gflops, share = describe_state(event.task, event.state)
        why = "" if summary.now is None else f", chosen because {summary.now.why}"
        self._print(
            f"{summary.headline()}; last {event.task.name}: {best_us} µs, {gflops} GFLOPS, {share} of the bound{why}"
        )

    def drawing(self) -> RenderableType:
        """The live table as it is now."""
        summary = self.summary
        rows = Table(box=None, pad_edge=False, header_style="bold")
        rows.add_column("task", no_wrap=True, overflow="ellipsis")
        for head in ("×", "best µs", "GFLOPS", "of bound", "trials", "failed"):
            rows.add_column(head, justify="right", no_wrap=True)
        now = None if summary.now is None else summary.now.task.key
        for task in summary.slowest(max(4, self._console.height - 9)):
            state = summary.state(task)
            failed = str(state.latencies_s.count(None) or "")
            numbers = (str(task.weight), *describe_state(task, state), str(state.trials), failed)
            rows.add_row(Text(escaped(task.name)), *numbers, style="bold cyan" if task.key == now else None)
        done = round(BAR_CELLS * min(1.0, summary.elapsed_s / max(summary.budget_s, 1e-9)))
        bar = Text.assemble(("━" * done, "cyan"), ("━" * (BAR_CELLS - done), "dim"))
        slot = "" if summary.now is None else f"{summary.now.task.name}: {summary.now.why}"
        return Group(Text(summary.pace()), bar, Text(summary.latencies()), Text(escaped(slot), "cyan"), rows)


class Steps(_Display):
    """Progress of a bench: one changing line on a terminal, a line per kind of step in a pipe."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._printed = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` are done of ``what``."""
        if self._quiet or self._draw(lambda: Text(escaped(f"{what}: {done} of {total}"))):
            return
        if what != self._printed:
            self._printed = what
            self._print(f"{what} ({total})")
