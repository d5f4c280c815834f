from __future__ import annotations

import subprocess
import sys


def test_catalogs_import_nothing_heavy() -> None:
    program = (
        "import sys, search.searcher_catalog, search.allocator_catalog, costmodels.cost_model_catalog;"
        "print([m for m in ('xgboost', 'sklearn', 'skopt', 'emcee', 'tvm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
