"""What every Measurer must do. Subclass, and give the fixtures ``measurer`` and ``batch``."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.measure.measurer import Candidate, Measurer


class MeasurerSuite:
    """The protocol's promises.

    Fixtures a subclass gives:
        measurer: an open measurer; closed by the subclass or by ``test_close_twice``.
        batch: at least three candidates of one task with different configs, of which ``failing`` fail.
        failing: indices of the candidates in ``batch`` that fail.
    """

    def test_origins_are_of_the_last_batch(self, measurer: Measurer, batch: Sequence[Candidate]) -> None:
        measurer.measure(batch)
        assert len(measurer.origins) in (0, len(batch))

    def test_one_measurement_per_candidate_in_order(
        self, measurer: Measurer, batch: Sequence[Candidate], failing: set[int]
    ) -> None:
        measured = measurer.measure(batch)
        assert len(measured) == len(batch)
        assert {i for i, measurement in enumerate(measured) if not measurement.ok} == failing
        turned = measurer.measure(list(reversed(batch)))
        assert [m.code_hash for m in reversed(turned)] == [m.code_hash for m in measured]
        assert [m.error for m in reversed(turned)] == [m.error for m in measured]

    def test_failures_say_why(self, measurer: Measurer, batch: Sequence[Candidate], failing: set[int]) -> None:
        measured = measurer.measure(batch)
        assert all(measured[i].error and measured[i].message for i in failing)

    def test_nothing_asked_nothing_measured(self, measurer: Measurer) -> None:
        assert measurer.measure([]) == []

    def test_the_same_config_twice_in_a_batch(self, measurer: Measurer, batch: Sequence[Candidate]) -> None:
        first, second = measurer.measure([batch[0], batch[0]])
        assert first.latencies_s == second.latencies_s
        assert first.code_hash == second.code_hash

    def test_an_incumbent_changes_no_outcome(
        self, measurer: Measurer, batch: Sequence[Candidate], failing: set[int]
    ) -> None:
        measured = measurer.measure(batch, incumbent_s=1e-9)
        assert {i for i, measurement in enumerate(measured) if not measurement.ok} == failing
        assert all(m.latencies_s for i, m in enumerate(measured) if i not in failing)

    def test_close_twice(self, measurer: Measurer) -> None:
        measurer.close()
        measurer.close()
