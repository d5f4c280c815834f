"""Replay of allocators on made-up models: the model's latency against tuning time.

Each task's own search is recorded once per seed, the same for every allocator. An allocator only decides how far each
of them has run. Trials cost what made-up compiles and runs cost, larger tasks more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from search.allocators.allocation import TaskState
from search.allocators.allocator_catalog import make_allocator
from search.searchers.searcher import SearchContext
from search.searchers.searcher_catalog import make_searcher
from tests.search_tests.synthetic import Bench, Conv, Pool2d

SLOT = 8
PEAK_SHARE = 0.9  # of the best config's speed that the roofline bound lies above it
UNTUNED = 20.0

# output height = width, input blocks, output blocks, kernel, weight: the shape of a residual network
LAYERS = (
    (56, 4, 4, 1, 1),
    (56, 4, 4, 3, 3),
    (56, 4, 16, 1, 4),
    (56, 16, 4, 1, 2),
    (28, 16, 8, 1, 1),
    (28, 8, 8, 3, 4),
    (28, 8, 32, 1, 4),
    (28, 32, 8, 1, 3),
    (14, 16, 16, 3, 6),
    (14, 16, 64, 1, 6),
    (14, 64, 16, 1, 5),
    (7, 32, 32, 3, 3),
    (7, 32, 128, 1, 3),
    (7, 128, 32, 1, 2),
)


@dataclass(frozen=True)
class Trajectory:
    """One task's search from start to end.

    Attributes:
        latencies_s: (n,) measured, None for a failure.
        spent_s: (n,) cost of each trial.
        final_s: least latency of the trajectory.
    """

    state: TaskState
    latencies_s: tuple[float | None, ...]
    spent_s: tuple[float, ...]

    @property
    def final_s(self) -> float:
        return min(latency for latency in self.latencies_s if latency is not None)

    def after(self, slots: int) -> TaskState:
        """The task's state after ``slots`` slots."""
        count = min(slots * SLOT, len(self.latencies_s))
        start = self.state
        return TaskState(
            start.key, start.template, start.weight, start.flop, start.bound_s,
            self.latencies_s[:count], self.spent_s[:count], count == len(self.latencies_s),
        )  # fmt: skip


@cache
def trajectories(seed: int, trials: int = 96) -> tuple[Trajectory, ...]:
    """Trajectories of all tasks of the made-up model."""
    all_runs = []
    kernels = [(Conv(h, h, i, o, k), w, 2 * h * h * i * o * 256 * k * k) for h, i, o, k, w in LAYERS]
    kernels += [(Pool2d(16 << index % 8), 1 + index % 3, 10**5 << index % 8) for index in range(12)]
    for index, (kernel, weight, flop) in enumerate(kernels):
        bench = Bench(kernel, 100 + index)
        state = TaskState(f"t{index}", bench.space.name, weight, flop, bench.best_s * PEAK_SHARE)
        all_runs.append(_run(bench, state, seed, trials))
    return tuple(all_runs)


def _run(bench: Bench, state: TaskState, seed: int, trials: int) -> Trajectory:
    noise = np.random.default_rng(seed * 31 + 7)
    searcher = make_searcher("adaptive", SearchContext(bench.space, np.random.default_rng(seed)))
    latencies: list[float | None] = []
    spent: list[float] = []
    while len(latencies) < trials:
        configs = searcher.ask(SLOT)
        if not configs:
            break
        results = [(config, bench.measure(config, noise)) for config in configs]
        searcher.tell(results)
        latencies += [measurement.latency_s if measurement.ok else None for _, measurement in results]
        spent += [m.compile_s + 0.02 + (10 * m.latency_s if m.ok else 0.0) for _, m in results]
    return Trajectory(state, tuple(latencies), tuple(spent))


def replay(allocator: str, seed: int, budget_s: float) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Times (n,) in seconds and the model's latency (n,) from then on."""
    tasks = trajectories(seed)
    slots = dict.fromkeys([trajectory.state.key for trajectory in tasks], 0)
    chooser = make_allocator(allocator, np.random.default_rng(seed))
    by_key = {trajectory.state.key: trajectory for trajectory in tasks}
    untuned = {key: UNTUNED * trajectory.state.bound_s for key, trajectory in by_key.items()}
    times, latencies, now = [0.0], [sum(by_key[k].state.weight * untuned[k] for k in by_key)], 0.0
    while now < budget_s:
        states = [by_key[key].after(count) for key, count in slots.items()]
        key = chooser.next(states)
        if key is None:
            break
        before = by_key[key].after(slots[key])
        slots[key] += 1
        now += sum(by_key[key].after(slots[key]).spent_s[before.trials :])
        total = 0.0
        for name, count in slots.items():
            best_s = by_key[name].after(count).best_s
            total += by_key[name].state.weight * (best_s if best_s is not None else untuned[name])
        times.append(now)
        latencies.append(total)
    return np.array(times), np.array(latencies)


def final_latency(seed: int) -> float:
    """The model's latency when every trajectory has run to its end."""
    return sum(trajectory.state.weight * trajectory.final_s for trajectory in trajectories(seed))


def time_to(allocator: str, seed: int, near: float, budget_s: float) -> float:
    """Seconds until the model is within ``near`` of its final latency; twice the budget if it never is."""
    times, latencies = replay(allocator, seed, budget_s)
    reached = np.flatnonzero(latencies <= near * final_latency(seed))
    return float(times[reached[0]]) if len(reached) else 2.0 * budget_s


def area(allocator: str, seed: int, budget_s: float) -> float:
    """Mean over the budget of the model's latency relative to its final one."""
    times, latencies = replay(allocator, seed, budget_s)
    ends = np.minimum(np.append(times[1:], budget_s), budget_s)
    spans = np.maximum(ends - np.minimum(times, budget_s), 0.0)
    return float((spans * latencies).sum() / budget_s / final_latency(seed))
