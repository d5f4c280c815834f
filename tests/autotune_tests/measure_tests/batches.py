"""The batch that every real measurer is tested with. Not in ``faults``, which workers import too."""

from __future__ import annotations

import pytest

from autotune.measure.measurer import Candidate
from tests.autotune_tests.measure_tests.faults import candidate


class FaultyBatch:
    """What ``MeasurerSuite`` asks for: five candidates, two of which fail."""

    @pytest.fixture
    def batch(self) -> list[Candidate]:
        return [candidate(kind) for kind in ("right", "illegal", "baseline", "wrong", "right otherwise")]

    @pytest.fixture
    def failing(self) -> set[int]:
        return {1, 3}
