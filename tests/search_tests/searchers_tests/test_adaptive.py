from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodels.posterior import TemplatePosterior, blank
from schedules.space import Space
from search.searchers.adaptive import AdaptiveSearch
from search.searchers.searcher import SearchContext
from tests.conformance import spaces
from tests.conformance.searcher_suite import drive, flat


def context(space: Space | None = None, seed: int = 0) -> SearchContext:
    return SearchContext(space or spaces.enumerated(), np.random.default_rng(seed))


def test_initial_configs_come_first() -> None:
    space = spaces.enumerated()
    asked = drive(AdaptiveSearch(context(space)), spaces.timed, 1)
    assert asked[0][:2] == list(space.initial)


def test_seeds_are_tried_whatever_other_tasks_recommend() -> None:
    plain = spaces.enumerated()
    others = [plain.config(row) for row in plain.rows if plain.config(row) not in plain.initial]
    seeds = (others[3], others[40], others[-1])
    known = tuple((config, spaces.timed(config)) for config in others[:64])
    space = replace(plain, seeds=seeds)
    warm = replace(context(space), siblings=((plain, known),))
    asked = drive(AdaptiveSearch(warm), spaces.timed, batches=3, count=2)
    assert asked[0][0] == space.initial[0]
    # One a batch, so that what is recommended is tried too.
    assert [[config for config in batch if config in seeds] for batch in asked] == [[seed] for seed in seeds]
    assert len(set(flat(asked))) == 6


def posterior_of(space: Space) -> TemplatePosterior:
    """A posterior by which configs of large features are fast."""
    known = blank(space, space.row_features(space.rows))
    weights = np.where(np.arange(len(known.weights)) < len(space.feature_names), -1.0, 0.0)
    return replace(known, weights=weights)


def test_what_is_known_of_the_template_is_tried_before_anything_was_measured() -> None:
    space = replace(spaces.enumerated(), initial=())
    known = posterior_of(space)
    asked = AdaptiveSearch(replace(context(space), template=known)).ask(4)
    slowness = known.slowness(space.row_features(space.rows), space.extents)
    assert sorted(known.slowness(space.features(asked), space.extents)) == sorted(slowness)[:4]


def test_a_search_stays_near_its_best_config_only_where_no_posterior_guides_it() -> None:
    space = spaces.enumerated()
    best, farthest = space.row(space.initial[0]), []
    for template in (None, posterior_of(space)):
        search = AdaptiveSearch(replace(context(space), template=template))
        search.tell([(space.initial[0], spaces.timed(space.initial[0]))])
        # The first place of a batch is free.
        farthest.append(max(int((space.row(config) != best).sum()) for config in search.ask(3)[1:]))
    assert farthest[0] == 1
    assert farthest[1] > 1
