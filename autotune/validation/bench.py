"""An artifact against other engines: the same inputs and threads, one process each, round by round in turn.

    speedup = the other's median latency / ours, > 1 is better

Its spread is that of the per-round ratios: a round's engines ran within a second of each other, so slow drift (clock,
neighbours) cancels in the ratio and what is left is noise.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.artifact.composite import Composite, read_composite
from autotune.artifact.directory import Artifact, read_artifact
from autotune.artifact.known_models import remembered_model
from autotune.artifact.manifest import BENCH, SEGMENTS, attach, kind_of, sha256
from autotune.frame.noise import is_live
from autotune.importer.load import load_model
from autotune.interface import TensorSpec
from autotune.runtime.model_timing import interval
from autotune.validation.bench_engine import OURS
from autotune.validation.bench_process import CpuMeter, EngineProcess, EngineTimes, wait_until_quiet
from autotune.validation.peers.peer_catalog import peer, peer_places
from autotune.validation.verify import runnable_inputs
from schedules.vocabulary.errors import ArtifactError, InstallError, ModelError, UsageError

ROUND_S = 0.2
"""Timed seconds per engine and round. Heuristic: long against a time slice, short against a drift of the clock."""
MOST_RUNS = 2000
"""Runs of one engine in a round: a model of 10 µs would otherwise send 20,000 numbers through a pipe."""
FEWEST_ROUNDS, MOST_ROUNDS = 6, 30
"""Rounds without ``rounds``: the 95 % interval of a median of fewer than 6 says nothing."""
SURE = 0.01
"""A ratio is known when half of its 95 % interval is within this share of it."""
LEAST_GAIN = 1.02
"""A peer's first way is left if another is this many times as fast: less is noise. Heuristic."""
ALONE_ROUNDS = 2
"""Rounds of an engine that is timed alone."""

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total)."""


@dataclass(frozen=True)
class BenchResult:
    """The measurements of a bench; ``engines[0]`` is ours.

    Attributes:
        others_cpu: share of the machine's CPUs that other processes used while an engine ran, from 0 to 1.
    """

    artifact: Path
    model: str
    threads: int
    engines: tuple[EngineTimes, ...]
    others_cpu: float

    def speedup(self, name: str) -> float:
        """Median latency of ``name`` over ours, > 1 if we are faster."""
        other = next(engine for engine in self.engines if engine.name == name)
        return statistics.median(other.runs_s) / statistics.median(self.engines[0].runs_s)

    def quartiles(self, name: str) -> tuple[float, float]:
        """First and third quartile of the per-round speedup over ``name``."""
        other = next(engine for engine in self.engines if engine.name == name)
        low, high = np.percentile(round_ratios(other, self.engines[0]), (25, 75))
        return float(low), float(high)

    def to_data(self) -> dict[str, Any]:
        """As in ``tune bench --json``."""
        others = [engine.name for engine in self.engines[1:]]
        return {
            "artifact": str(self.artifact),
            "model": self.model,
            "threads": self.threads,
            "rounds": len(self.engines[0].rounds),
            "engines": [engine.to_data() for engine in self.engines],
            "speedup": {name: self.speedup(name) for name in others},
            "speedup_quartiles": {name: list(self.quartiles(name)) for name in others},
            "others_cpu": self.others_cpu,
        }


def bench(
    artifact_path: Path,
    against: Sequence[str] = ("onnxruntime",),
    model_path: Path | None = None,
    rounds: int | None = None,
    seed: int = 0,
    progress: Progress = lambda what, done, total: None,  # noqa: ARG005
    most_rounds: int = MOST_ROUNDS,
) -> BenchResult:
    """Time the artifact and ``against`` in turn.

    Args:
        against: names of peers, and paths of other artifacts of the model, each on the
            threads that it was tuned for.
        model_path: the ONNX model; None looks for it, see ``find_model``.
        rounds: how often every engine gets its turn; None: until every ratio is known (``SURE``).
        seed: of the random inputs.
        most_rounds: limit of rounds without ``rounds``.

    Raises:
        UsageError: for an unknown engine, an artifact with other inputs, or no rounds.
        InstallError: if an engine is not installed.
        ArtifactError, ModelError: if an artifact or its model cannot be read.
        MeasureError: if an engine dies or hangs.
    """
    check_engines(against)
    if rounds is not None and rounds < 1:
        raise UsageError(f"--rounds {rounds}: must be at least 1")
    artifact = read_timed(artifact_path)
    specs, threads = inputs_of(artifact), max(thread_counts(artifact))
    others = {name: read_timed(Path(name)) for name in against if is_artifact(name)}
    strange = next((name for name, other in others.items() if inputs_of(other) != specs), None)
    if strange is not None:
        raise UsageError(f"{strange} takes other inputs than {artifact_path}; give artifacts of one model at one shape")
    model = find_model(artifact, model_path) if len(others) < len(against) else None
    with tempfile.TemporaryDirectory(prefix="tune-bench-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        # With its shapes fixed as in the artifact, so that every engine may specialise.
        bound = None if model is None else load_model(model, {spec.name: spec.shape for spec in specs if spec.shape})
        feed = runnable_inputs(bound, specs, seed)
        write_job(folder, bound, feed, threads, str(artifact_path.resolve()), source=model)
        engines = []
        for index, name in enumerate((OURS, *against)):
            progress("starting engines", index, len(against) + 1)
            own = max(thread_counts(others[name])) if name in others else threads
            engines.append(stack.enter_context(start_engine(name, folder, own)))
        counts = [_calibrate(engine, engines) for engine in engines]
        others_cpu = _take_turns(engines, counts, rounds, most_rounds, progress)
        for engine in engines:
            engine.times.memory = engine.memory()
    times = tuple(engine.times for engine in engines)
    source = str(artifact.provenance.get("model", ""))
    return BenchResult(artifact_path, source, threads, times, others_cpu)


def _take_turns(
    engines: Sequence[EngineProcess], counts: Sequence[int], rounds: int | None, most_rounds: int, progress: Progress
) -> float:
    """Time the engines in turn, and return how many CPUs others used meanwhile; arguments as of ``bench``.

    Args:
        counts: inferences of a turn of each engine.
    """
    meter, limit = CpuMeter(), most_rounds if rounds is None else rounds
    for done in range(limit):
        progress("rounds", done, limit)
        for engine, count in zip(engines, counts, strict=True):
            wait_until_quiet(engines)
            with meter.watching(engine):
                engine.times.rounds.append(engine.run(count, warmup=max(1, count // 3)))
        if rounds is None and all(is_known(engine.times, engines[0].times) for engine in engines[1:]):
            break
    progress("rounds", limit, limit)
    return meter.others_cpu


def round_ratios(other: EngineTimes, ours: EngineTimes) -> list[float]:
    """The other engine's median latency over ours in each round."""
    pairs = zip(other.rounds, ours.rounds, strict=True)
    return [statistics.median(theirs) / statistics.median(own) for theirs, own in pairs]


def is_known(other: EngineTimes, ours: EngineTimes) -> bool:
    """Return whether the rounds so far determine the ratio to ``other``, see ``SURE``."""
    ratios = round_ratios(other, ours)
    low, median, high = interval(ratios)
    return len(ratios) >= FEWEST_ROUNDS and high - low <= 2 * SURE * median


def read_timed(path: Path) -> Artifact | Composite:
    """An artifact that takes inputs of one set of shapes.

    Raises:
        ArtifactError: if it cannot be read, or takes several: each of its parts is an artifact of its own.
    """
    return read_composite(path) if kind_of(path) == SEGMENTS else read_artifact(path)


def inputs_of(artifact: Artifact | Composite) -> tuple[TensorSpec, ...]:
    """The inputs of one request: the model's, and of several sets of shapes, the smallest one's.

    Without those that say which positions of a padded call count: other engines run the model as it is.
    """
    if isinstance(artifact, Artifact):
        return tuple(spec for spec in artifact.inputs if not is_live(spec.name))
    if artifact.kind == SEGMENTS:
        specs = artifact.interface.inputs
        return tuple(TensorSpec(spec.name, tuple(map(int, spec.shape)), spec.dtype) for spec in specs)
    part = min(artifact.tuned, key=lambda tuned: sum(map(math.prod, tuned.shapes.values())))
    open_specs = [spec for spec in part.inputs if not is_live(spec.name)]
    return tuple(TensorSpec(spec.name, part.shapes[spec.name], spec.dtype) for spec in open_specs)


def thread_counts(artifact: Artifact | Composite) -> list[int]:
    """The numbers of threads that kernels were tuned for; of a device alone, that of its host."""
    if isinstance(artifact, Artifact):
        return [artifact.target.threads]
    return [part.threads for part in artifact.tuned] or [1]


def keep_bench(result: BenchResult) -> None:
    """Write the result into its artifact, for ``tune report``. A folder that cannot be written is no error."""
    kept = {**result.to_data(), "when": time.time(), "host": platform.node()}
    try:
        attach(result.artifact, BENCH, json.dumps(kept).encode())
    except ArtifactError as error:
        logger.warning("the result was not kept for reports: %s", error)


def check_engines(names: Sequence[str]) -> None:
    """Refuse engines that are unknown or not installed; names of artifacts pass.

    Raises:
        UsageError, InstallError: naming the engine and what to do.
    """
    for name in (name for name in names if not is_artifact(name)):
        engine = peer(name)
        if importlib.util.find_spec(engine.package) is None:
            raise InstallError(f"{name} is not installed; run: {engine.install}")
    if len(set(names)) < len(names):
        raise UsageError(f"--against {','.join(names)} names an engine twice")


def is_artifact(name: str) -> bool:
    """Return whether what is compared with is an artifact, by its path, and no engine."""
    return name not in peer_places() and Path(name).is_dir()


def start_engine(name: str, folder: Path, threads: int) -> EngineProcess:
    """The process of an engine, or of another artifact.

    Args:
        folder: as ``write_job`` left it for our artifact and for engines that read ONNX.
        threads: of the other artifact.

    Raises:
        MeasureError: if it cannot be loaded.
    """
    if name == OURS:
        return EngineProcess(name, folder)
    if not is_artifact(name):
        return EngineProcess(_fastest_way(name, folder), folder, name)
    other = Path(tempfile.mkdtemp(dir=folder))
    job = json.loads((folder / "job.json").read_text())
    job |= {"threads": threads, "artifact": str(Path(name).resolve())}
    if job["serve"] is not None:
        job["serve"] = {}  # streams and batches that were asked for are our artifact's
    (other / "job.json").write_text(json.dumps(job))
    (other / "inputs.npz").hardlink_to(folder / "inputs.npz")
    return EngineProcess(OURS, other, name)


def find_model(artifact: Artifact | Composite, model_path: Path | None = None) -> Path:
    """The ONNX file that the artifact was built from: ``model_path``, or where it is found.

    It is looked for by name beside the artifact and in this folder, then where it lay when this user built from it.

    Raises:
        ModelError: if there is none or its hash differs.
    """
    name, digest = (str(artifact.provenance.get(key, "")) for key in ("model", "sha256"))
    if model_path is not None:
        if not model_path.is_file():
            what = "is not a file" if model_path.exists() else "does not exist"
            raise ModelError(f"{model_path} {what}; give the ONNX file that {artifact.path} was built from")
        if sha256(model_path) != digest:
            raise ModelError(
                f"{model_path} is not the model that {artifact.path} was built from (its hash differs); "
                f"give its own, {name}"
            )
        return model_path
    places = (artifact.path.resolve().parent / name, Path.cwd() / name, remembered_model(digest))
    candidates = [place for place in places if name and place is not None and place.is_file()]
    for place in candidates:
        if sha256(place) == digest:
            return place
    nowhere = f"{name} is neither beside {artifact.path} nor in this folder nor where it was when it was tuned here"
    what = f"{candidates[0]} has changed since" if candidates else nowhere
    raise ModelError(f"{what}; give the model that it was built from with --model")


def write_job(
    folder: Path,
    model: onnx.ModelProto | None,
    feed: Mapping[str, NDArray[Any]],
    threads: int,
    artifact: str = "",
    serve: Mapping[str, Any] | None = None,
    source: Path | None = None,
) -> None:
    """Write what ``autotune.validation.bench_engine`` reads.

    Args:
        model: None where no engine reads ONNX.
        feed: input name → array.
        artifact: path of the artifact; empty where ours does not run.
        serve: fields of ``ServeOptions``, for requests side by side.
        source: the ONNX file that ``model`` was read from.
    """
    if model is not None:
        onnx.save(model, folder / "model.onnx")
    np.savez(folder / "inputs.npz", *feed.values())
    job = {"threads": threads, "artifact": artifact, "inputs": list(feed), "serve": serve}
    job["source"] = None if source is None else str(source.resolve())
    (folder / "job.json").write_text(json.dumps(job))


def time_alone(name: str, model: onnx.ModelProto, feed: Mapping[str, NDArray[Any]], threads: int) -> EngineTimes:
    """A few rounds of one engine alone, some half a second: enough to show beside a run, too few to publish.

    Args:
        model: checked, its shapes fixed.
        feed: input name → array.

    Raises:
        MeasureError: if the engine dies or hangs.
    """
    with tempfile.TemporaryDirectory(prefix="tune-reference-") as temporary:
        write_job(Path(temporary), model, feed, threads)
        with EngineProcess(name, Path(temporary)) as engine:
            count = _calibrate(engine, [engine])
            for _ in range(ALONE_ROUNDS):
                engine.times.rounds.append(engine.run(count, warmup=1))
            return engine.times


def _fastest_way(name: str, folder: Path) -> str:
    """The way to run a peer: its first, unless another is faster by ``LEAST_GAIN`` on the work in ``folder``."""
    ways = list(peer(name).ways)
    if len(ways) == 1:
        return ways[0]
    medians = {}
    for way in ways:  # each in a process that ends: the fastest one's memory is its own
        with EngineProcess(way, folder) as engine:
            medians[way] = statistics.median(engine.run(_calibrate(engine, [engine]), warmup=1))
    best = min(ways, key=medians.__getitem__)
    return best if medians[best] * LEAST_GAIN < medians[ways[0]] else ways[0]


def _calibrate(engine: EngineProcess, engines: Sequence[EngineProcess]) -> int:
    """Runs per round that take some ROUND_S."""
    wait_until_quiet(engines)
    fastest = min(engine.run(3, warmup=5))
    return max(1, min(MOST_RUNS, math.ceil(ROUND_S / fastest)))
