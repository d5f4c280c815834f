"""Cost models by name."""

from __future__ import annotations

from collections.abc import Callable

from costmodels.cost_model import CostModel
from schedules.vocabulary.choices import choose, lazy

_FACTORIES: dict[str, Callable[[int], CostModel]] = {
    "boosted": lazy("costmodels.boosted:Boosted"),
    "forest": lazy("costmodels.forest:Forest"),
    "extra-trees": lazy("costmodels.forest:Forest", extra=True),
    "gaussian-process": lazy("costmodels.gaussian_process:GaussianProcess"),
}

COST_MODELS: tuple[str, ...] = tuple(_FACTORIES)
"""Every name that ``make_cost_model`` knows."""


def make_cost_model(name: str, seed: int) -> CostModel:
    """A new, unfitted cost model; the same name, seed and data give the same predictions.

    Raises:
        UsageError: if ``name`` is unknown.
    """
    return choose("--cost-model", name, _FACTORIES)(seed)
