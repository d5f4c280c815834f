from __future__ import annotations

import subprocess
import sys


def test_a_cost_model_is_imported_on_another_thread() -> None:
    program = (
        "import sys; from autotune.tuning.search_program import preload;"
        "preload('boosted').join(); print('xgboost' in sys.modules); preload('no such model').join()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("True", "")
