from __future__ import annotations

import subprocess
import sys

import pytest

from costmodels.cost_model_catalog import COST_MODELS, make_cost_model
from schedules.vocabulary.errors import UsageError
from tests.conformance.cost_model_suite import CostModelSuite


class TestCostModels(CostModelSuite):
    @pytest.fixture(params=COST_MODELS)
    def cost_model_name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


def test_unknown_cost_model_without_a_near_name_lists_all() -> None:
    with pytest.raises(UsageError, match=r"choose one of .*boosted") as caught:
        make_cost_model("zzz", 0)
    assert "did you mean" not in str(caught.value)


def test_catalogs_import_nothing_heavy() -> None:
    program = (
        "import sys, search.searchers.searcher_catalog, search.allocators.allocator_catalog;"
        "import costmodels.cost_model_catalog;"
        "print([m for m in ('xgboost', 'sklearn', 'skopt', 'emcee', 'tvm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
