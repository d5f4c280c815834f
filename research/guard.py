"""``python -m research.guard COMMIT MODEL… [--rounds 24]``: this tree against another commit, in turn.

Both trees build artifacts from one log, so they ship the same configs. Several processes of each tree open and run
them, in turn: two processes of one tree can differ by 8 % for as long as they live. Then both tune the first model for
some seconds from an empty log, in turn, and the measured candidates are compared. A ratio has moved when its quartiles
lie on one side of 1 and its median is off by more than ``NOISE``; the command then ends with 1 if anything became
slower.

The other commit is checked out below build/guard; both trees use this environment's packages. Where the log has no
records of a model, this tree tunes it first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/guard"
NOISE = 0.02
"""Relative difference below which nothing is called moved. Artifacts of equal kernels differed by up to 1.4 %."""

REST_S = 0.25
"""Pause before a process's turn, for the other's threads to go to sleep."""

PROCESSES = 4
"""Processes that run a tree's artifact; one is enough to open it. Single pairs of qdq_cnn (0.4 ms) gave 0.90 to 1.01;
four of each, started in four orders, gave 0.998 to 1.004."""

RUNS = 15
"""Inferences of one turn, of which the median counts."""

ENGINE = """
import json, sys, time
import numpy as np
import autotune
session = autotune.InferenceSession(sys.argv[1])
rng = np.random.default_rng(0)
feed = {}
for arg in session.get_inputs():
    kind = arg.type[len("tensor("):-1] if "int" in arg.type else "float32"
    made = rng.standard_normal([int(n) for n in arg.shape])
    feed[arg.name] = (made if kind == "float32" else np.abs(made)).astype(kind)  # numbers of words are not negative
for _ in range(5):
    session.run(None, feed)
print("ready", flush=True)
for line in sys.stdin:
    what, count = line.split()
    laps = []
    for _ in range(int(count)):
        start = time.perf_counter()
        if what == "open":
            autotune.InferenceSession(sys.argv[1])
        else:
            session.run(None, feed)
        laps.append(time.perf_counter() - start)
    print(json.dumps(laps), flush=True)
"""


class Tree:
    """One checkout, whose code runs in this environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._environment = os.environ | {"PYTHONPATH": str(root)}

    def command(self, *arguments: str, **environment: str) -> str:
        """What ``tune`` prints, with these variables besides."""
        line, own = [sys.executable, "-m", "autotune", *arguments], self._environment | environment
        done = subprocess.run(line, cwd=self.root, env=own, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{self.root}: tune {' '.join(arguments)} failed:\n{done.stderr}")
        return done.stdout

    def engine(self, artifact: Path) -> subprocess.Popen[str]:
        """A process that runs ``artifact`` when asked, warm."""
        line = [sys.executable, "-c", ENGINE, str(artifact)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(line, cwd=self.root, env=self._environment, stdin=pipe, stdout=pipe, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


def checkout(commit: str) -> Path:
    """The folder of ``commit``'s tree, made if it is not there."""
    git = ["git", "-C", str(ROOT)]
    sha = subprocess.run(
        [*git, "rev-parse", "--short", commit], capture_output=True, text=True, check=True
    ).stdout.strip()
    path = FOLDER / sha
    if not path.exists():
        subprocess.run([*git, "worktree", "add", "--detach", str(path), sha], check=True, capture_output=True)
    return path


def turn_s(process: subprocess.Popen[str], what: str = "run") -> float:
    """Median seconds of one turn: of inferences, or of opening the artifact again (``open``)."""
    assert process.stdin is not None
    assert process.stdout is not None
    time.sleep(REST_S)
    process.stdin.write(f"{what} {RUNS}\n")
    process.stdin.flush()
    return statistics.median(json.loads(process.stdout.readline()))


def turns_s(processes: Sequence[subprocess.Popen[str]], what: str) -> float:
    """Median seconds of the processes' turns."""
    return statistics.median(turn_s(process, what) for process in processes)


def in_turn(before: Callable[[], float], after: Callable[[], float], rounds: int) -> list[float]:
    """before / after of every round; which goes first alternates."""
    ratios = []
    for number in range(rounds):
        if number % 2:
            late, early = after(), before()
        else:
            early, late = before(), after()
        ratios.append(early / late)
    return ratios


def verdict(name: str, ratios: list[float]) -> bool:
    """Print a line; whether this tree is slower beyond noise. A ratio above 1 means that this tree is faster."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    moved = abs(middle - 1) > NOISE and (low > 1 or high < 1)
    word = "level" if not moved else "faster" if middle > 1 else "SLOWER"
    print(f"{name:32} {middle:6.3f} ({low:.3f} to {high:.3f}, {len(ratios)} rounds) {word}", flush=True)
    return moved and middle < 1


def artifacts(model: str, trees: tuple[Tree, Tree], rounds: int) -> bool:
    """Whether this tree's artifact is slower."""
    onnx, log = ROOT / f"build/models/{model}.onnx", FOLDER / "log.db"
    if not onnx.exists():
        subprocess.run(["make", "-s", str(onnx.relative_to(ROOT))], cwd=ROOT, check=True)
    tuned = FOLDER / f"{model}.tuned"
    if not tuned.exists():
        trees[1].command("run", str(onnx), "--budget", "40s", "--log", str(log), "--out", str(tuned), "--quiet")
    built = []
    for number, tree in enumerate(trees):
        out = FOLDER / f"{model}-{number}.tuned"
        copy = FOLDER / f"log-{number}.db"
        copy.write_bytes(log.read_bytes())  # neither tree writes what the other reads
        tree.command("build", str(onnx), "--log", str(copy), "--out", str(out), "--quiet")
        built.append(out)
    pairs = [[tree.engine(out) for tree, out in zip(trees, built, strict=True)] for _ in range(PROCESSES)]
    engines = list(zip(*pairs, strict=True))
    slower = []
    for what, title, count in (("run", "latency", PROCESSES), ("open", "opening", 1)):
        before, after = (partial(turns_s, processes[:count], what) for processes in engines)
        slower.append(verdict(f"{model}, {title}", in_turn(before, after, rounds)))
    for process in itertools.chain(*engines):
        process.kill()
    return any(slower)


def tuner(model: str, trees: tuple[Tree, Tree], rounds: int) -> bool:
    """Whether this tree measures fewer candidates in the same time."""
    onnx = ROOT / f"build/models/{model}.onnx"

    def seconds_per_trial(tree: Tree) -> float:
        log = FOLDER / "empty.db"
        for file in FOLDER.glob("empty.db*"):
            file.unlink()
        out = str(FOLDER / "tuned")
        said = tree.command("run", str(onnx), "--budget", "15s", "--log", str(log), "--out", out, "--no-peer", "--json")
        result = json.loads(said)
        return float(result["elapsed_s"]) / int(result["measured_trials"])

    ratios = in_turn(lambda: seconds_per_trial(trees[0]), lambda: seconds_per_trial(trees[1]), rounds)
    return verdict(f"{model}, candidates per second", ratios)


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--tunings", type=int, default=4, help="runs of the tuner per tree; 0 for none")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    trees = Tree(checkout(options.commit)), Tree(ROOT)
    print(f"{options.commit} / this tree; above 1 this tree is faster")
    slower = [artifacts(model, trees, options.rounds) for model in options.models]
    if options.tunings:
        slower.append(tuner(options.models[0], trees, options.tunings))
    return int(any(slower))


if __name__ == "__main__":
    sys.exit(main())
