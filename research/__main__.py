"""``python -m research [--section CPU] [MODEL[:BUDGET]…]``: tune and time test models; write docs/benchmarks.md.

The page has a section for each kind of CPU, and README shows the first.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from research.page import PEERS, Row, replaced, table
from tests.models import save

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "models"
PAGE = ROOT / "docs" / "benchmarks.md"
MODELS = ["resnet50", "squeezenet", "inception_v1", "vgg19", "shufflenet", "encoder", "mlp", "qdq_cnn"]
"""Those of the page."""
FIRST = "Zen 5"
"""The first section of the page with a table, which README shows."""
BUDGET = "45s"
"""The budget of each run where none is named: two runs of all models and their comparison take half an hour."""
TUNE = [sys.executable, "-c", "import sys; from autotune.cli.main import main; sys.exit(main())"]


def tune(*arguments: str) -> dict[str, object]:
    """The JSON object that a command prints; its progress goes through."""
    print("tune", *arguments, file=sys.stderr)
    done = subprocess.run([*TUNE, *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def measure(model: str, budget: str) -> Row:
    """Tune one model in its own precision and with ``auto``, each from an empty log, and time both with every peer."""
    onnx, tuned, auto = (FOLDER / f"{model}{end}" for end in (".onnx", ".tuned", ".auto.tuned"))
    if not onnx.exists():
        save(model, onnx)
    run, lower = tuned_run(onnx, tuned, budget), tuned_run(onnx, auto, budget, "--precision", "auto")
    return Row(model, run, lower, tune("bench", str(tuned), "--against", ",".join([*PEERS, str(auto)])))


def tuned_run(onnx: Path, out: Path, budget: str, *options: str) -> dict[str, object]:
    """The JSON object of a run that finds an empty log."""
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "log.db")
        return tune("run", str(onnx), "--out", str(out), "--budget", budget, "--log", log, *options)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m research", description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL[:BUDGET]")
    parser.add_argument("--section", default=FIRST, help="heading of docs/benchmarks.md whose table is replaced")
    arguments = parser.parse_args()
    words = [] if arguments.section == FIRST else [f"--section '{arguments.section}'"]
    words += [] if arguments.models == MODELS else arguments.models
    command = f'make bench BENCH="{" ".join(words)}"' if words else "make bench"
    rows = []
    for item in arguments.models:
        model, _, budget = item.partition(":")
        rows.append(measure(model, budget or BUDGET))
        PAGE.write_text(replaced(PAGE.read_text(), arguments.section, table(rows, tune("devices"), command)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
