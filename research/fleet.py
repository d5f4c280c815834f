"""The same number of trials on this machine, and on two Ray workers of this machine.

``python -m research.fleet MODEL FOLDER`` prints both runs' latencies, who measured, and the sum of the best
latencies of all tasks. Run it with nothing else on the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from ray.cluster_utils import Cluster

from tuning_logs.sql_store import open_log

TRIALS = 150


def run(model: str, folder: Path, name: str, *more: str) -> None:
    """One run, and what it brought."""
    places = ["--out", str(folder / name), "--log", str(folder / f"{name}.db")]
    limits = ["--trials", str(TRIALS), "--budget", "120s", "--no-peer", "--quiet", "--json"]
    command = [sys.executable, "-m", "autotune", "run", model, *places, *limits, *more]
    told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    log = open_log(folder / f"{name}.db")
    records = [record for record in log.records() if record.measurement.ok]
    log.close()
    best: dict[str, float] = {}
    for record in records:
        best[record.key.task] = min(best.get(record.key.task, 1.0), record.measurement.latency_s)
    print(
        name,
        f"{told['measured_trials']} trials in {told['elapsed_s']:.1f} s, model {told['latency_ms']['tuned']:.3f} ms",
    )
    print(f"  sum of the best of {len(best)} tasks: {1e6 * sum(best.values()):.0f} us")
    print("  records:", dict(Counter(record.provenance.get("worker", record.host) for record in records)))


def main() -> None:
    """Both runs."""
    model, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True)
    run(model, folder, "here")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    try:
        run(model, folder, "two-workers", "--cluster", cluster.address)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
