from __future__ import annotations

import numpy as np
import pytest

from search.searchers.history import FAILURE_GAP, History
from search.searchers.pool import Pool
from tests.conformance import spaces
from tuning_logs.measurement import Measurement


def test_history_keeps_the_newest_success() -> None:
    space = spaces.tiny()
    history = History(Pool(space, np.random.default_rng(0)))
    config = space.config([1])
    history.tell([(config, Measurement(latencies_s=(1e-3,)))])
    history.tell([(config, Measurement(latencies_s=(2e-3,)))])
    history.tell([(config, spaces.failed(config))])
    assert np.exp(-history.scores).tolist() == pytest.approx([2e-3])
    other = space.config([0])
    history.tell([(other, spaces.failed(other))])
    assert history.valid.tolist() == [True, False]
    assert history.incumbents(5).tolist() == [[1]]
    assert history.filled_scores.tolist() == pytest.approx([np.log(500), np.log(500) - FAILURE_GAP])
    assert history.features.shape == (2, 1)
