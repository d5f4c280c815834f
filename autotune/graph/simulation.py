"""The time of a placement whose lanes slow each other down only while they work at the same time. Pure."""

from __future__ import annotations

from autotune.graph.placement import LEAST_S, ROUNDING, Copy, Placement, Problem


def simulate(problem: Problem, placement: Placement) -> tuple[tuple[float, float], ...]:
    """(n,) when every subgraph begins and ends, in seconds.

    Between two events each running subgraph progresses at its rate beside the kinds of lane that work just then. A copy
    begins as soon as its tensor is written and its link is free, in the placement's order; it slows nothing down.
    """
    run = _run(problem, placement)
    return tuple((run.begun[s], run.ended[s]) for s in range(problem.count))


def simulate_copies(problem: Problem, placement: Placement) -> tuple[Copy, ...]:
    """The copies of ``simulate``, in the order in which they begin."""
    return tuple(sorted(_run(problem, placement).copies, key=lambda copy: (copy.start, copy.end)))


def _run(problem: Problem, placement: Placement) -> _Run:
    run = _Run(problem, placement)
    while run.waiting or run.left:
        run.step()
    return run


class _Run:
    """The state between two events.

    Attributes:
        left: running subgraph → share of its work that is left.
        waiting: subgraphs that have not begun, in the placement's order.
        copied: (tensor, memory) → when it is there.
        copies: the copies so far.
    """

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self._problem, self._lanes = problem, placement.lanes
        self.begun: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self.left: dict[int, float] = {}
        self.waiting = list(placement.order)
        self.copied: dict[tuple[int, str], float] = {}
        self.copies: list[Copy] = []
        self._copies = [(copy.tensor, copy.link) for copy in placement.copies]
        self._free: dict[tuple[str, str], float] = {}
        self._now = 0.0

    def _there(self, tensor: int, reader: int) -> float | None:
        """Return when ``reader`` has ``tensor``; None if that is not known yet."""
        problem, source = self._problem, self._problem.tensors[tensor].source
        written, read = problem.lanes[self._lanes[source]], problem.lanes[self._lanes[reader]]
        if written.memory != read.memory:
            return self.copied.get((tensor, read.memory))
        if source not in self.ended:
            return None
        same = self._lanes[source] == self._lanes[reader]
        return self.ended[source] + (0.0 if same else problem.crossing.seconds(problem.tensors[tensor].bytes))

    def _may_start(self, subgraph: int) -> bool:
        """Return whether its cores are free, no earlier subgraph waits for them, and what it reads is there."""
        lanes = self._problem.lanes
        others = (*self.left, *self.waiting[: self.waiting.index(subgraph)])
        cores = set(lanes[self._lanes[subgraph]].cores)
        if any(cores & set(lanes[self._lanes[other]].cores) for other in others):
            return False
        times = [self._there(tensor, subgraph) for tensor in self._problem.reads[subgraph]]
        return all(time is not None and time <= self._now for time in times)

    def _begin_copies(self) -> None:
        """Note when copies end whose tensors are written; per link in the placement's order."""
        stopped = set[tuple[str, str]]()
        for tensor, link in list(self._copies):
            source = self._problem.tensors[tensor].source
            home = self._problem.lanes[self._lanes[source]].memory
            ready = self.ended.get(source) if link[0] == home else self.copied.get((tensor, link[0]))
            if ready is None or link in stopped:
                stopped.add(link)
                continue
            start = max(ready, self._free.get(link, 0.0))
            end = start + self._problem.copy_s(link, tensor)
            self.copies.append(Copy(tensor, link, start, end))
            self.copied[tensor, link[1]] = self._free[link] = end
            self._copies.remove((tensor, link))

    def step(self) -> None:
        """To the next event."""
        self._begin_copies()
        for subgraph in [s for s in self.waiting if self._may_start(s)]:
            self.waiting.remove(subgraph)
            self.begun[subgraph], self.left[subgraph] = self._now, 1.0
        rates = {s: 1.0 / max(self._seconds(s), LEAST_S) for s in self.left}
        due = {s: self._now + self.left[s] / rates[s] for s in self.left}
        arrivals = [self._there(t, s) for s in self.waiting for t in self._problem.reads[s]]
        then = min([*due.values(), *(time for time in arrivals if time is not None and time > self._now)])
        for subgraph, rate in rates.items():
            self.left[subgraph] -= (then - self._now) * rate
        self._now = then
        # What is due ends, even if rounding leaves a remainder: some subgraphs take almost no time.
        for subgraph in [s for s, rest in self.left.items() if due[s] <= then or rest <= ROUNDING]:
            del self.left[subgraph]
            self.ended[subgraph] = then

    def _seconds(self, subgraph: int) -> float:
        """Return the seconds of the entire ``subgraph``, next to what runs now."""
        lanes = self._problem.lanes
        kinds = frozenset(lanes[self._lanes[other]].kind for other in self.left if other != subgraph)
        return self._problem.rate_s(subgraph, self._lanes[subgraph], kinds) or 0.0
