"""Cost models by name."""

from __future__ import annotations

from collections.abc import Callable

from costmodels.choices import choose
from costmodels.cost_model import CostModel


# Imports stay inside the factories: xgboost and scikit-learn are optional to a run that does not choose them, and
# importing either costs more than a second.
def _boosted(seed: int) -> CostModel:
    from costmodels.boosted import Boosted

    return Boosted(seed)


def _forest(seed: int) -> CostModel:
    from costmodels.forest import Forest

    return Forest(seed)


def _extra_trees(seed: int) -> CostModel:
    from costmodels.forest import Forest

    return Forest(seed, extra=True)


def _gaussian_process(seed: int) -> CostModel:
    from costmodels.gaussian_process import GaussianProcess

    return GaussianProcess(seed)


_FACTORIES: dict[str, Callable[[int], CostModel]] = {
    "boosted": _boosted,
    "forest": _forest,
    "extra-trees": _extra_trees,
    "gaussian-process": _gaussian_process,
}

COST_MODELS: tuple[str, ...] = tuple(_FACTORIES)
"""Every name that ``make_cost_model`` knows."""


def make_cost_model(name: str, seed: int) -> CostModel:
    """A new, unfitted cost model; the same name, seed and data give the same predictions.

    Raises:
        UsageError: if ``name`` is unknown.
    """
    return choose("cost model", name, _FACTORIES)(seed)
