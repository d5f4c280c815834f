"""``python -m research.own_time MODEL.onnx …``: what searchers and the allocator take of a run's tuning time.

Each model is tuned from an empty log for ``--budget-s`` seconds, with the candidates and searchers of ``tune run``.
Printed are candidates per second of the loop, and the shares of the loop's time that went into asking and telling the
searchers, which holds every fit, and into choosing the task of a slot and asking whether enough was found.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotune.host import lean_loading

OWN = "searchers"
CHOICE = "allocator and certificate"
LOOP = "loop"


def timed(owner: type, name: str, label: str, spent_s: dict[str, float]) -> None:
    """Add what every call of a method takes to ``spent_s``; one that raises counts, too."""
    method: Callable[..., Any] = getattr(owner, name)

    def around(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            spent_s[label] += time.perf_counter() - began

    setattr(owner, name, around)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m research.own_time", description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--budget-s", type=float, default=30.0)
    options = parser.parse_args()
    lean_loading.leave_out_unused([])
    # After the line above, as in the command line: else XGBoost loads scikit-learn.
    from autotune.options import Options
    from autotune.tuning.job import Job
    from autotune.tuning.loop import TuningLoop
    from autotune.tuning.tune import tune
    from search.allocators.share_per_second import SharePerSecond

    spent_s: dict[str, float] = defaultdict(float)
    for owner, name, label in (
        (Job, "ask", OWN),
        (Job, "tell", OWN),
        (SharePerSecond, "next", CHOICE),
        (TuningLoop, "_why_enough", CHOICE),
        (TuningLoop, "run", LOOP),
    ):
        timed(owner, name, label, spent_s)
    for model in options.models:
        spent_s.clear()
        with tempfile.TemporaryDirectory() as folder:
            result = tune(model, Options(budget_s=options.budget_s, log=f"{folder}/t.db", out=f"{folder}/out.tuned"))
        loop_s = spent_s[LOOP]
        shares = ", ".join(f"{label} {spent_s[label] / loop_s:.1%}" for label in (OWN, CHOICE))
        print(
            f"{model.stem}: {result.measured_trials / loop_s:.0f} candidates a second of {loop_s:.1f} s; {shares}",
            flush=True,
        )


if __name__ == "__main__":
    main()
