"""What a tuning log saves: ``python -m research.reuse second|after … --folder FOLDER``.

    second MODEL --budget 60          tune a model twice with one log; how much faster is the second run
    after TEACHER MODEL --budget 80   tune MODEL with an empty log, then in half the time with TEACHER's log

Everything is kept in FOLDER, so that the parts can run apart from each other, each alone on the machine.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.models import save

TUNE = [sys.executable, "-c", "import sys; from autotune.cli.main import main; sys.exit(main())"]


def tuned(folder: Path, model: str, name: str, log: str, budget_s: float) -> dict[str, object]:
    """One ``tune run`` into artifact ``name``; its JSON object."""
    onnx = folder / f"{model}.onnx"
    if not onnx.exists():
        save(model, onnx)
    out = ["--out", str(folder / name), "--log", str(folder / log), "--budget", f"{budget_s:g}s"]
    done = subprocess.run([*TUNE, "run", str(onnx), *out, "--quiet", "--json"], stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def shown(title: str, run: dict[str, object]) -> None:
    """One line of a run."""
    latency = run["latency_ms"]
    assert isinstance(latency, dict)
    fields = [f"{run['elapsed_s']:.1f} s", f"{run['measured_trials']} measured", f"{run['reused_records']} reused"]
    print(f"{title:10}", ", ".join(fields), f"tuned {latency['tuned']:.2f} ms", run["reason"], sep="  ", flush=True)


def second(folder: Path, model: str, budget_s: float) -> None:
    """Tune ``model`` twice."""
    runs = [tuned(folder, model, f"{model}.tuned", f"{model}.db", budget_s) for _ in range(2)]
    shown("first", runs[0])
    shown("second", runs[1])
    print(f"ratio       {float(str(runs[0]['elapsed_s'])) / float(str(runs[1]['elapsed_s'])):.1f} times faster")


def after(folder: Path, teacher: str, model: str, budget_s: float) -> None:
    """Tune ``model`` cold, then warm in half the time."""
    for name in ("cold.db", "warm.db", "cold.tuned", "warm.tuned"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shown("cold", tuned(folder, model, "cold.tuned", "cold.db", budget_s))
    shutil.copy(folder / f"{teacher}.db", folder / "warm.db")
    shown("warm", tuned(folder, model, "warm.tuned", "warm.db", budget_s / 2))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parts = parser.add_subparsers(dest="part", required=True)
    for name, models in (("second", ["model"]), ("after", ["teacher", "model"])):
        part = parts.add_parser(name)
        for argument in models:
            part.add_argument(argument)
        part.add_argument("--budget", type=float, required=True)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.part == "second":
        second(arguments.folder, arguments.model, arguments.budget)
    else:
        after(arguments.folder, arguments.teacher, arguments.model, arguments.budget)
    return 0


if __name__ == "__main__":
    sys.exit(main())
