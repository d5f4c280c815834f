"""What a run needs later, imported while it waits for something else."""

from __future__ import annotations

import threading
from contextlib import suppress

from costmodels.cost_model_catalog import make_cost_model


def preload(cost_model: str) -> threading.Thread:
    """Import what the cost model needs on another thread; join it before anything is timed.

    XGBoost and scikit-learn take a second. Nothing is said of what goes wrong: the searcher meets it again.
    """

    def load() -> None:
        with suppress(Exception):
            make_cost_model(cost_model, 0)

    thread = threading.Thread(target=load, name="preload", daemon=True)
    thread.start()
    return thread
