"""Requests side by side: an artifact against other engines, and other artifacts, under several clients at once.

A client sends its next request as soon as the last one is answered. Engines run in turn, round by round, each in its
own process on the same cores; an engine with several ways to serve is run in each, and the better one is compared. A
way that falls far behind the other is left out of later rounds.

    speedup = our requests per second / those of the other's best way, > 1 is better
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from autotune.artifact.composite import Composite, read_composite
from autotune.artifact.directory import Artifact, read_artifact
from autotune.artifact.manifest import AUTO, KERNELS, STREAMS, kind_of
from autotune.host.machine import read_host
from autotune.importer.load import load_model
from autotune.runtime.serve_options import ServeOptions
from autotune.validation.bench import (
    Progress,
    check_engines,
    find_model,
    inputs_of,
    is_artifact,
    start_engine,
    thread_counts,
    write_job,
)
from autotune.validation.bench_engine import OURS
from autotune.validation.bench_process import CpuMeter, EngineProcess, wait_until_quiet
from autotune.validation.peers.peer_catalog import peer
from autotune.validation.verify import runnable_inputs
from schedules.vocabulary.errors import UsageError

ROUND_S = 0.3
"""Timed seconds per engine, number of clients and round. Heuristic: some requests of the slowest model."""

LOOKS, FAR_BEHIND = 4, 0.85
"""Rounds after which a way to serve is left out that answers less than this share of what its engine's better way does.
Over 20 rounds of SqueezeNet, 4 clients, the worse ways answered 0.78 and 0.83 of the better ones."""


MOST_CLIENTS = 4096
"""Most clients at once. Heuristic: a process can have some more threads."""


@dataclass
class Served:
    """The measurements of one engine for one number of clients.

    Attributes:
        rounds: (requests per second, seconds of every request) of each round.
    """

    name: str
    version: str
    precision: str
    clients: int
    rounds: list[tuple[float, list[float]]] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """Requests per second of every round."""
        return [rate for rate, _ in self.rounds]

    @property
    def requests_per_s(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.rates)

    def to_data(self) -> dict[str, Any]:
        """As in ``tune bench --clients --json``."""
        every_ms = 1e3 * np.concatenate([latencies for _, latencies in self.rounds])
        p50, p90, p99 = (float(value) for value in np.percentile(every_ms, (50, 90, 99)))
        return {
            "name": self.name,
            "version": self.version,
            "precision": self.precision,
            "clients": self.clients,
            "requests": len(every_ms),
            "requests_per_s": self.requests_per_s,
            "quartiles": [float(value) for value in np.percentile(self.rates, (25, 75))],
            "p50_ms": p50,
            "p90_ms": p90,
            "p99_ms": p99,
        }


@dataclass(frozen=True)
class ClientsResult:
    """The measurements of a bench of several clients; the first of every number of clients is ours.

    Attributes:
        threads: that every engine may use.
        served: every engine for every number of clients.
        ways: engine, or another artifact → names in ``served`` of its ways to serve.
        others_cpu: share of the machine's CPUs that other processes used while an engine ran, from 0 to 1.
    """

    artifact: Path
    model: str
    threads: int
    rounds: int
    served: tuple[Served, ...]
    ways: Mapping[str, tuple[str, ...]]
    others_cpu: float

    def speedup(self, name: str, clients: int) -> float:
        """Our requests per second over those of the better way of ``name``."""
        rates = {served.name: served.requests_per_s for served in self.served if served.clients == clients}
        return rates[OURS] / max(rates[way] for way in self.ways[name])

    def to_data(self) -> dict[str, Any]:
        """As in ``tune bench --clients --json``."""
        counts = dict.fromkeys(served.clients for served in self.served)
        return {
            "artifact": str(self.artifact),
            "model": self.model,
            "threads": self.threads,
            "rounds": self.rounds,
            "served": [served.to_data() for served in self.served],
            "speedup": {name: {str(count): self.speedup(name, count) for count in counts} for name in self.ways},
            "others_cpu": self.others_cpu,
        }


def bench_clients(
    path: Path,
    clients: Sequence[int],
    against: Sequence[str],
    options: ServeOptions,
    model_path: Path | None = None,
    rounds: int = 5,
    progress: Progress = lambda what, done, total: None,  # noqa: ARG005
) -> ClientsResult:
    """Let so many clients at once send requests to the artifact and to ``against``.

    Args:
        clients: numbers of clients.
        against: names of peers that serve several clients, and paths of other artifacts of the model.
        options: of our session.
        model_path, rounds: as ``bench``.

    Raises:
        UsageError: for an unknown engine, no rounds, no clients, or more than ``MOST_CLIENTS``.
        AutotuneError: as ``bench``.
    """
    if rounds < 1 or not clients or min(clients) < 1:
        raise UsageError(f"rounds is {rounds} and clients are {list(clients)}; each must be at least 1")
    if max(clients) > MOST_CLIENTS:
        raise UsageError(f"--clients {max(clients)}: must be at most {MOST_CLIENTS}, each is a thread of every engine")
    ways = {name: (name,) if is_artifact(name) else _ways(name) for name in against}
    check_engines(against)
    artifact = read_artifact(path) if kind_of(path) == KERNELS else read_composite(path)
    specs, threads = inputs_of(artifact), _threads(artifact, options)
    with tempfile.TemporaryDirectory(prefix="tune-bench-") as temporary, ExitStack() as stack:
        bound = None
        if not all(map(is_artifact, ways)):
            bound = load_model(
                find_model(artifact, model_path), {spec.name: spec.shape for spec in specs if spec.shape}
            )
        feed = runnable_inputs(bound, specs, 0)
        names = [OURS, *(way for engine_ways in ways.values() for way in engine_ways)]
        folder = Path(temporary)
        write_job(folder, bound, feed, threads, str(path.resolve()), asdict(options))
        engines: list[EngineProcess] = []
        for number, name in enumerate(names):
            progress("starting engines", number, len(names))
            is_way = name != OURS and name not in against
            process = EngineProcess(name, folder) if is_way else start_engine(name, folder, threads)
            engines.append(stack.enter_context(process))
        table = {
            (number, count): Served(name, engine.times.version, engine.times.precision, count)
            for count in clients
            for number, (name, engine) in enumerate(zip(names, engines, strict=True))
        }
        meter = CpuMeter()
        for done in range(rounds):
            progress("rounds", done, rounds)
            _serve_all(engines, table, _far_behind(table.values(), ways) if done >= LOOKS else (), meter)
        progress("rounds", rounds, rounds)
    source = str(artifact.provenance.get("model", ""))
    return ClientsResult(path, source, threads, rounds, tuple(table.values()), ways, meter.others_cpu)


def _serve_all(
    engines: Sequence[EngineProcess],
    table: Mapping[tuple[int, int], Served],
    left_out: Collection[tuple[str, int]],
    meter: CpuMeter,
) -> None:
    """Let every number of clients ask every engine for one round, but for names and numbers that are ``left_out``."""
    for (number, count), served in table.items():
        if (served.name, count) not in left_out:
            wait_until_quiet(engines)
            with meter.watching(engines[number]):
                served.rounds.append(engines[number].serve(count, ROUND_S))


def _ways(name: str) -> tuple[str, ...]:
    """Names of the ways in which a peer serves several clients.

    Raises:
        UsageError: if there is no such peer, or it serves one.
    """
    ways = tuple(peer(name).clients)
    if not ways:
        raise UsageError(f"--against {name}: it cannot serve several clients at once; leave it or --clients out")
    return ways


def _far_behind(served: Iterable[Served], ways: Mapping[str, tuple[str, ...]]) -> set[tuple[str, int]]:
    """(name, number of clients) of the ways that cannot be their engine's better one."""
    rates = {(entry.name, entry.clients): entry.requests_per_s for entry in served}
    best = {
        (way, count): max(rates[other, count] for other in engine_ways)
        for engine_ways in ways.values()
        for way in engine_ways
        for _, count in rates
    }
    return {key for key, rate in rates.items() if rate < FAR_BEHIND * best.get(key, 0.0)}


def _threads(artifact: Artifact | Composite, options: ServeOptions) -> int:
    """Threads that a session of the artifact uses, on all its streams."""
    counts = thread_counts(artifact)
    streams = options.streams or artifact.provenance.get(STREAMS, 1)
    return read_host().usable_threads if streams == AUTO else max(max(counts), min(counts) * int(streams))
