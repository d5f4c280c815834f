from __future__ import annotations

import subprocess
import sys


def test_a_cost_model_is_imported_on_another_thread() -> None:
    program = (
        "import sys; from costmodels.catalog import preload;"
        "preload('boosted').join(); print('xgboost' in sys.modules); preload('no such model').join()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


def test_catalogs_import_nothing_heavy() -> None:
    program = (
        "import sys, search.catalog, search.allocator_catalog, costmodels.catalog;"
        "print([m for m in ('xgboost', 'sklearn', 'skopt', 'emcee', 'tvm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
