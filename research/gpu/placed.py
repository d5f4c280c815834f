"""``python -m research.gpu.placed MODEL``: a model on the GPU alone, the CPU alone, and placed on both, in turn.

Prints milliseconds of each, of PyTorch on the GPU, and the placement's predicted time, as one JSON line last.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from autotune import InferenceSession
from autotune.report.inspect_lanes import report_lanes
from autotune.validation.verify import session_inputs
from research.gpu.__main__ import Run, race, torch_engine, tune
from schedules.vocabulary.errors import AutotuneError

WAYS = {"gpu": ("--target", "cuda"), "cpu": ("--lanes", "cpu"), "placed": ("--lanes", "cpu,cuda:0")}
"""Name → options of ``tune run``."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--budget", default="20s", help="of each of the three")
    parser.add_argument("--out", type=Path, default=Path("build/gpu/placed"))
    arguments = parser.parse_args()
    runs: dict[str, Run] = {}
    facts: dict[str, object] = {"model": arguments.model}
    for way, options in WAYS.items():
        folder = arguments.out / way
        folder.mkdir(parents=True, exist_ok=True)
        tuned = tune(arguments.model, arguments.budget, folder, *options)
        if "error" in tuned:
            facts[f"{way} failed"] = tuned["error"]
            continue
        session = InferenceSession(folder / f"{arguments.model}.tuned")
        feed = session_inputs(session, 0)
        runs[way] = lambda session=session, feed=feed: session.run(None, feed)
    if "placed" in runs:
        try:
            facts["predicted ms"] = (
                1e3 * report_lanes(arguments.out / "placed" / f"{arguments.model}.tuned").predicted_s
            )
        except AutotuneError as error:  # one lane was kept
            facts["predicted ms"] = str(error)
    if runs:
        try:
            peer = torch_engine(arguments.model, feed, "")
        except Exception as error:  # whatever the peer lacks: ours are still timed
            peer, facts["torch failed"] = None, str(error)[:300]
        facts["ms"] = race(runs | ({"torch": peer} if peer else {}))
    print(json.dumps(facts))
    return int(set(WAYS) - set(runs) != set())


if __name__ == "__main__":
    sys.exit(main())
