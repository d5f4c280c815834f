"""``python -m research MODEL[:BUDGET]… [--rounds N]``: tune and time test models, and write docs/benchmarks.md."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from autotune.options import EFFORTS
from research.page import Row, replaced, table
from tests.models import save

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "models"
PAGE = ROOT / "docs" / "benchmarks.md"
STANDARD = f"{EFFORTS['standard']:g}s"
"""The budget where none is named: that of a run without options."""
TUNE = [sys.executable, "-c", "import sys; from autotune.cli.main import main; sys.exit(main())"]


def tune(*arguments: str) -> dict[str, object]:
    """The JSON object that a command prints; its progress goes through."""
    print("tune", *arguments, file=sys.stderr)
    done = subprocess.run([*TUNE, *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def measure(model: str, budget: str, against: str, rounds: int) -> Row:
    """Tune and time one model; what was measured before is used."""
    onnx, tuned = FOLDER / f"{model}.onnx", FOLDER / f"{model}.tuned"
    if not onnx.exists():
        save(model, onnx)
    events = FOLDER / f"{model}.events"
    run = tune("run", str(onnx), "--out", str(tuned), "--budget", budget, "--events", str(events))
    bench = tune("bench", str(tuned), "--against", against, "--rounds", str(rounds))
    return Row(model, budget, run, bench)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m research", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL[:BUDGET]")
    parser.add_argument("--against", default="onnxruntime,openvino,openvino-default")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    rows = []
    for item in arguments.models:
        model, _, budget = item.partition(":")
        rows.append(measure(model, budget or STANDARD, arguments.against, arguments.rounds))
        command = f'make bench BENCH="{" ".join(arguments.models)}" ROUNDS={arguments.rounds}'
        PAGE.write_text(replaced(PAGE.read_text(), table(rows, tune("devices"), command)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
