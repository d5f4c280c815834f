"""``python -m research.machines record|table``: what streams would do on larger machines, from profiles of this one.

    record NAME ONE.tuned TWO.tuned   times a model's kernels on one thread, on one beside another stream, and on two
    table                             requests per second and latency of every way to cut machines of 8 to 64 cores

The profile has three times of the whole model: t₁ on one core, t₂ on two, and t₁′ on one core while the other one runs
the same. From them, for k streams of n cores on a node:

    t(n)    = s + (t₁ − s) / n, with s = 2·t₂ − t₁ ≥ 0: Amdahl's law through t₁ and t₂
    t(n, k) = max( t(n) · (t₁′ / t₁ where k > 1),  k · bytes of weights / bandwidth of the node )

Weights are read from memory where they do not fit in the node's last cache. They lie on the node that opened them:
streams on other nodes read them at ``REMOTE`` of the bandwidth.

A stream whose cores lie on two nodes waits for its slower half. Cores are dealt out as a session does it
(``host/machine.py: core_groups``). A way to cut is judged by requests per second where ``n_streams`` requests are on at
any time. Nothing of this was measured on such a machine: the figures of memory are assumptions, written below.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from autotune.artifact.manifest import WEIGHTS
from autotune.host.machine import Host, core_groups, read_host
from autotune.runtime.serve_options import ServeOptions
from autotune.runtime.session import InferenceSession
from research.serving import LOAD, ideal_s, percentiles

FOLDER = Path(__file__).with_name("machines")

ROUNDS, RUNS = 20, 4
"""In turn, and runs of each in its turn: the machine's clock wanders."""

NODE_BYTES_PER_S = 120e9
"""Memory bandwidth of a NUMA node with eight channels of DDR4-3200, at 60 % of the 205 GB/s on paper. An assumption."""

REMOTE = 0.6
"""Bandwidth to another node's memory over that to the own one. An assumption."""

LAST_CACHE_BYTES = 32 << 20
"""Of a node. An assumption."""

REQUESTS = 20000
"""Of the simulated queue at ``LOAD``."""


@dataclass(frozen=True)
class Profile:
    """What was measured of one model.

    Attributes:
        one_s, two_s: a run on one core and on two, with nothing beside it.
        beside_s: a run on one core while the other core runs the same.
        weights: bytes that a run reads.
    """

    model: str
    machine: str
    one_s: float
    two_s: float
    beside_s: float
    weights: int

    def alone_s(self, cores: int) -> float:
        """A run on ``cores`` cores."""
        serial = max(0.0, 2.0 * self.two_s - self.one_s)
        return serial + (self.one_s - serial) / cores


@dataclass(frozen=True)
class Machine:
    """Sockets of equal cores, each a node of memory."""

    nodes: int
    cores: int

    @property
    def host(self) -> Host:
        """As this program would see it."""
        every = self.nodes * self.cores
        files = {"/sys/devices/system/node/online": f"0-{self.nodes - 1}"}
        for node in range(self.nodes):
            first = node * self.cores
            files[f"/sys/devices/system/node/node{node}/cpulist"] = f"{first}-{first + self.cores - 1}"
            for cpu in range(first, first + self.cores):
                folder = f"/sys/devices/system/cpu/cpu{cpu}/topology"
                files |= {f"{folder}/core_id": str(cpu - first), f"{folder}/physical_package_id": str(node)}
        return read_host(files.get, range(every))


@dataclass(frozen=True)
class Cut:
    """One way to cut a machine into streams, and what it would do.

    Attributes:
        torn: streams whose cores lie on two nodes.
        p99: latency at ``LOAD`` and random moments that 99 % of the requests stay below, seconds.
    """

    streams: int
    threads: int
    torn: int
    requests_per_s: float
    latency_s: float
    p99_s: float


MACHINES = (Machine(1, 8), Machine(1, 64), Machine(2, 32), Machine(4, 16))


def served(profile: Profile, machine: Machine, streams: int, threads: int) -> Cut:
    """What ``streams`` streams of ``threads`` cores each would do."""
    groups = core_groups(streams, threads, machine.host)
    homes = [sorted({cpu // machine.cores for cpu in group}) for group in groups]
    crowd = [sum(node in home for home in homes) for node in range(machine.nodes)]
    times = [max(_stream_s(profile, threads, crowd[node], node) for node in home) for home in homes]
    torn = sum(len(home) > 1 for home in homes)
    rate = sum(1.0 / seconds for seconds in times)
    due = np.cumsum(np.random.default_rng(0).exponential(1.0 / (LOAD * rate), REQUESTS))
    p99_s = percentiles(ideal_s(due, streams, statistics.mean(times)))["p99_ms"] * 1e-3
    return Cut(streams, threads, torn, rate, statistics.mean(times), p99_s)


def _stream_s(profile: Profile, threads: int, crowd: int, node: int) -> float:
    """A run of one of ``crowd`` streams on a node."""
    slower = profile.beside_s / profile.one_s if crowd > 1 else 1.0
    bandwidth = NODE_BYTES_PER_S * (1.0 if node == 0 else REMOTE)
    fetched = profile.weights if profile.weights > LAST_CACHE_BYTES else 0
    return max(profile.alone_s(threads) * slower, crowd * fetched / bandwidth)


def cuts(profile: Profile, machine: Machine) -> Iterator[Cut]:
    """Every cut into equal streams of powers of two."""
    cores = machine.nodes * machine.cores
    threads = 1
    while threads <= cores:
        yield served(profile, machine, cores // threads, threads)
        threads *= 2


def record(name: str, one: Path, two: Path) -> Profile:
    """Time the artifacts for one thread and for two on this machine."""
    alone, both, wide = (
        InferenceSession(path, serve=ServeOptions(streams=streams)) for path, streams in ((one, 1), (one, 2), (two, 1))
    )
    rng = np.random.default_rng(0)
    feed = {
        spec.name: rng.standard_normal([int(n) for n in spec.shape]).astype(np.float32) for spec in alone.get_inputs()
    }

    def seconds(session: InferenceSession) -> list[float]:
        laps = []
        for _ in range(RUNS):
            began = time.perf_counter()
            session.run(None, feed)
            laps.append(time.perf_counter() - began)
        return laps

    def seconds_beside(session: InferenceSession) -> list[float]:
        stop = threading.Event()

        def neighbour() -> None:
            while not stop.is_set():
                session.run(None, feed)

        other = threading.Thread(target=neighbour)
        other.start()
        try:
            return seconds(session)
        finally:
            stop.set()
            other.join()

    for session in (alone, both, wide):
        session.run(None, feed)
    rounds = [(seconds(alone), seconds(wide), seconds_beside(both)) for _ in range(ROUNDS)]
    one_s, two_s, beside_s = (statistics.median(chain.from_iterable(laps)) for laps in zip(*rounds, strict=True))
    return Profile(name, read_host().model, one_s, two_s, beside_s, (one / WEIGHTS).stat().st_size)


def table(profiles: Sequence[Profile]) -> list[str]:
    """Lines: per model and machine the cut with the most requests per second, and the ends."""
    head = "| model | machine | best cut | requests/s | latency, p99 at 70 % ms | a stream per core: requests/s "
    lines = [head + "| one stream: requests/s | latency ms |", "|---|---|---|" + "---:|" * 6]
    for profile in profiles:
        for machine in MACHINES:
            all_cuts = list(cuts(profile, machine))
            best, narrow, wide = max(all_cuts, key=lambda cut: cut.requests_per_s), all_cuts[0], all_cuts[-1]
            name = f"{machine.nodes} × {machine.cores} cores"
            cells = [f"{best.streams} × {best.threads}", f"{best.requests_per_s:.0f}"]
            cells += [f"{1e3 * best.latency_s:.1f}, {1e3 * best.p99_s:.1f}", f"{narrow.requests_per_s:.0f}"]
            cells += [f"{wide.requests_per_s:.0f}", f"{1e3 * wide.latency_s:.1f}"]
            lines.append(f"| {profile.model} | {name} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m research.machines", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("name")
    recording.add_argument("one", type=Path)
    recording.add_argument("two", type=Path)
    commands.add_parser("table")
    options = parser.parse_args()
    if options.command == "record":
        FOLDER.mkdir(exist_ok=True)
        profile = record(options.name, options.one, options.two)
        (FOLDER / f"{options.name}.json").write_text(json.dumps(asdict(profile), indent=1) + "\n")
    profiles = [Profile(**json.loads(path.read_text())) for path in sorted(FOLDER.glob("*.json"))]
    print("\n".join(table(profiles)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
