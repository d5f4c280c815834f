"""What every Searcher owes. Subclass, and give a ``searcher_name`` fixture with the names to test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from schedules.config import Config
from schedules.space import Space
from search.searchers.searcher import Result, SearchContext, Searcher
from search.searchers.searcher_catalog import make_searcher
from tests.conformance import spaces
from tuning_logs.measurement import Measurement

SPACES = (spaces.enumerated, spaces.product)
OUTCOMES = (spaces.timed, spaces.constant, spaces.failed, spaces.mixed)
Outcome = Callable[[Config], Measurement]


def drive(searcher: Searcher, outcome: Outcome, batches: int, count: int = 8) -> list[list[Config]]:
    """Ask and tell ``batches`` times; every ask."""
    asked = []
    for _ in range(batches):
        asked.append(searcher.ask(count))
        searcher.tell([(config, outcome(config)) for config in asked[-1]])
    return asked


def flat(asked: list[list[Config]]) -> list[Config]:
    return [config for batch in asked for config in batch]


class SearcherSuite:
    """The protocol's promises, over enumerated, product and degenerate spaces."""

    def make(self, name: str, space: Space, seed: int = 0, prior: bool = False) -> Searcher:
        told = tuple((c, spaces.mixed(c)) for c in space.sample(20, np.random.default_rng(9)))
        context = SearchContext(space, np.random.default_rng(seed), siblings=((space, told),) if prior else ())
        return make_searcher(name, context)

    def test_is_a_searcher(self, searcher_name: str) -> None:
        assert isinstance(self.make(searcher_name, spaces.tiny()), Searcher)

    @pytest.mark.parametrize("space", SPACES)
    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_asks_are_full_valid_and_new(
        self, searcher_name: str, space: Callable[[], Space], outcome: Outcome
    ) -> None:
        own_space = space()
        asked = drive(self.make(searcher_name, own_space), outcome, batches=4)
        assert [len(batch) for batch in asked] == [8, 8, 8, 8]
        assert len(set(flat(asked))) == 32
        assert all(own_space.contains(config) for config in flat(asked))

    @pytest.mark.parametrize("space", SPACES)
    def test_same_seed_same_asks(self, searcher_name: str, space: Callable[[], Space]) -> None:
        runs = [drive(self.make(searcher_name, space(), seed=3), spaces.mixed, batches=4) for _ in range(2)]
        assert runs[0] == runs[1]

    def test_another_seed_asks_otherwise(self, searcher_name: str) -> None:
        runs = [drive(self.make(searcher_name, spaces.product(), seed), spaces.timed, batches=3) for seed in (1, 2)]
        assert flat(runs[0]) != flat(runs[1])

    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_finds_every_config_then_nothing(self, searcher_name: str, outcome: Outcome) -> None:
        space = spaces.enumerated()
        searcher = self.make(searcher_name, space)
        asked = drive(searcher, outcome, batches=-(-space.size // 16), count=16)
        assert sorted(flat(asked)) == sorted(space.config(row) for row in space.rows)
        assert searcher.ask(4) == []

    @pytest.mark.parametrize("outcome", OUTCOMES)
    def test_one_config(self, searcher_name: str, outcome: Outcome) -> None:
        space = spaces.single()
        asked = drive(self.make(searcher_name, space), outcome, batches=3)
        assert asked == [[space.config([0])], [], []]

    def test_asking_for_more_than_there_is(self, searcher_name: str) -> None:
        asked = drive(self.make(searcher_name, spaces.tiny()), spaces.timed, batches=2, count=100)
        assert [len(batch) for batch in asked] == [3, 0]

    def test_asking_for_nothing(self, searcher_name: str) -> None:
        searcher = self.make(searcher_name, spaces.enumerated())
        assert searcher.ask(0) == []
        assert len(searcher.ask(3)) == 3

    def test_product_space_with_hardly_any_config(self, searcher_name: str) -> None:
        asked = drive(self.make(searcher_name, spaces.tight_product()), spaces.timed, batches=2)
        assert len(set(flat(asked))) == len(flat(asked)) <= 1

    def test_asks_before_tells_do_not_repeat(self, searcher_name: str) -> None:
        searcher = self.make(searcher_name, spaces.enumerated())
        batches = [searcher.ask(8) for _ in range(3)]
        searcher.tell([(config, spaces.timed(config)) for config in reversed(flat(batches))])
        batches.append(searcher.ask(8))
        assert len(set(flat(batches))) == 32

    @pytest.mark.parametrize("space", SPACES)
    def test_told_but_never_asked_is_not_asked(self, searcher_name: str, space: Callable[[], Space]) -> None:
        own_space = space()
        told = [*own_space.initial, *own_space.sample(20, np.random.default_rng(5))]
        searcher = self.make(searcher_name, own_space)
        searcher.tell([(config, spaces.timed(config)) for config in told])
        assert not set(told) & set(flat(drive(searcher, spaces.timed, batches=3)))

    def test_told_twice_and_told_nothing(self, searcher_name: str) -> None:
        space = spaces.enumerated()
        searcher = self.make(searcher_name, space)
        results: list[Result] = [(config, spaces.timed(config)) for config in searcher.ask(6)]
        searcher.tell([])
        searcher.tell([*results, *results])
        searcher.tell([(results[0][0], spaces.failed(results[0][0]))])
        assert len(searcher.ask(6)) == 6

    def test_told_of_another_space(self, searcher_name: str) -> None:
        searcher = self.make(searcher_name, spaces.tiny())
        foreign = spaces.single().config([0])
        searcher.tell([(foreign, spaces.timed(foreign))])
        assert len(searcher.ask(8)) == 3

    def test_prior_of_other_tasks(self, searcher_name: str) -> None:
        asked = drive(self.make(searcher_name, spaces.enumerated(), prior=True), spaces.timed, batches=3)
        assert len(set(flat(asked))) == 24

    def test_varying_batch_sizes(self, searcher_name: str) -> None:
        searcher = self.make(searcher_name, spaces.enumerated())
        seen: list[Config] = []
        for count in (1, 3, 1, 13, 2, 7):
            batch = searcher.ask(count)
            assert len(batch) == count
            seen += batch
            searcher.tell([(config, spaces.mixed(config)) for config in batch])
        assert len(set(seen)) == len(seen)
