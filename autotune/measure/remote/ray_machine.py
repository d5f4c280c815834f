"""Machines of a Ray cluster as machines of a fleet: one actor per node.

Actors ask for no CPUs, so that Ray never lets them wait behind work it knows of; that nothing else runs while one times
is for ``turns.py`` and whoever fills the cluster.
"""

from __future__ import annotations

import logging
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune.host.roofline import Peak
from autotune.measure.evaluator import Evaluator
from autotune.measure.measurer import Candidate, Origin
from autotune.measure.remote.fleet import MachineLost
from autotune.measure.remote.ray_worker import Answer, Description, Limits, RayWorker, versions
from schedules.errors import AutotuneError, InstallError, MeasureError
from schedules.target import Target
from tuning_logs.measurement import Measurement

log = logging.getLogger(__name__)

LOCAL = "local"
"""``--cluster local``: a cluster of this machine alone, started and ended with the run."""

CONNECT_S = 10.0
START_S = 120.0
ANSWER_S = 900.0
"""A machine that has not answered a batch by then is lost; every candidate has limits of its own far below."""

END_S = 10.0


class RayMachine:
    """One node's worker.

    Args:
        actor: Ray's handle of a ``RayWorker`` that is open.
        description: what it said of itself.
        node: Ray's name of the node.
    """

    def __init__(self, actor: Any, description: Description, node: str) -> None:
        self.origin = Origin(description.host, f"ray {node}")
        self.cpu = description.cpu
        self.target = description.target
        self.compile_s = 0.0
        self.measure_s = 0.0
        self.cold_bytes = 0
        self._actor = actor
        self._closed = False
        self._count = 0
        self._folder = tempfile.TemporaryDirectory(prefix="tune-ray-")

    def measure(
        self, candidates: Sequence[Candidate], incumbent_s: float | None, leader: Candidate | None
    ) -> list[Measurement]:
        """One measurement per candidate."""
        return self._noted(self._actor.measure.remote(list(candidates), incumbent_s, leader, self.cold_bytes))

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """As of ``Ranker``."""
        return self._noted(self._actor.rank.remote(list(candidates), self.cold_bytes))

    def baseline_s(self, candidate: Candidate) -> Measurement:
        """As of ``Workshop``."""
        (measurement,) = self._noted(self._actor.baseline_s.remote(candidate, self.cold_bytes))
        return measurement

    def objects(self, candidates: Sequence[Candidate]) -> list[Path]:
        """As of ``Workshop``; they come over the network and are kept here until the machine is closed."""
        contents: list[bytes] = answer_of(self._actor.objects.remote(list(candidates)), ANSWER_S)
        paths = []
        for content in contents:
            self._count += 1
            paths.append(Path(self._folder.name) / f"{self._count}.o")
            paths[-1].write_bytes(content)
        return paths

    def peak(self) -> Peak:
        """That machine's peak."""
        peak: Peak = answer_of(self._actor.peak.remote(), START_S)
        return peak

    def close(self) -> None:
        """End the actor; what it started ends with it."""
        import ray

        if not self._closed:
            self._closed = True
            if ray.is_initialized():  # else it ended with the connection
                ray.kill(self._actor)
            self._folder.cleanup()

    def _noted(self, reference: Any) -> list[Measurement]:
        answer: Answer = answer_of(reference, ANSWER_S)
        self.compile_s, self.measure_s = answer.compile_s, answer.measure_s
        return list(answer.measurements)


def answer_of(reference: Any, timeout_s: float) -> Any:
    """What a worker answers.

    Raises:
        MachineLost: if it died, cannot be reached, or says nothing in time.
        MeasureError: if a kernel that is to be shipped does not compile there.
        AutotuneError: if it refused in another of our own sentences, other than that measuring there is broken.
    """
    import ray

    try:
        return ray.get(reference, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError as error:
        raise MachineLost(f"no answer within {timeout_s:.0f} s") from error
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, AutotuneError) and "does not compile" in str(cause):
            raise MeasureError(str(cause)) from error
        if isinstance(cause, AutotuneError) and not isinstance(cause, MeasureError):
            raise type(cause)(str(cause)) from error
        if isinstance(cause, (AutotuneError, OSError)):
            raise MachineLost(str(cause)) from error
        raise
    except ray.exceptions.RayError as error:
        raise MachineLost(_first_line(error)) from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line and "File" not in line]
    return (telling or lines or [type(error).__name__])[-1 if telling else 0][:300]


def connect(address: str) -> None:
    """Join the Ray cluster at ``address``, or start one of this machine alone (``local``).

    Raises:
        InstallError: if Ray is not installed.
        MeasureError: if there is no cluster at that address.
    """
    try:
        import ray
    except ImportError as error:
        raise InstallError("--cluster needs Ray; run: pip install 'tune-compiler[cluster]'") from error
    if ray.is_initialized():
        return
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    try:
        if address == LOCAL:
            ray.init(address="local", include_dashboard=False, num_cpus=1, **quiet)
        else:
            _look_for(address)
            ray.init(address=address, **quiet)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise MeasureError(
            f"there is no Ray cluster at {address} ({_first_line(error)}); start one with 'ray start --head', "
            "or measure on this machine alone with --cluster local"
        ) from error


def _look_for(address: str) -> None:
    """Fail at once, not after Ray's minute, where nothing listens."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        with socket.create_connection((host, int(port)), CONNECT_S):
            pass


def open_machines(
    address: str,
    threads: int | None,
    isa: str | None,
    evaluator: str | Evaluator,
    seed: int,
    limits: Limits | None = None,
) -> list[RayMachine]:
    """Workers of the cluster's machines, all of one target: the one that most have; the others are named and left out.

    Raises:
        InstallError: if Ray is not installed here.
        MeasureError: if there is no cluster, or no machine of it can measure.
    """
    connect(address)
    actors = _actors()
    described: dict[str, Description] = {}
    for node, actor in actors.items():
        with _left_out(node):
            described[node] = answer_of(actor.describe.remote(threads, isa), START_S)
    wanted = chosen(described)
    machines = []
    for node, actor in actors.items():
        if wanted is None or node not in described or described[node].target != wanted:
            _end(actor)
            continue
        with _left_out(node):
            answer_of(actor.open.remote(wanted, evaluator, seed, limits or Limits()), START_S)
            machines.append(RayMachine(actor, described[node], node))
    if not machines:
        raise MeasureError(
            f"no machine of the Ray cluster at {address} can measure ({len(actors)} asked, see the warnings); each "
            "needs this program installed: pip install 'tune-compiler[cluster]'"
        )
    return machines


@contextmanager
def _left_out(node: str) -> Iterator[None]:
    """Go on without a node that fails in the body."""
    try:
        yield
    except (MachineLost, AutotuneError) as error:
        log.warning("node %s of the cluster is left out: %s", node, error)


def _actors() -> dict[str, Any]:
    """Node name → actor on it, for every living node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0, max_restarts=0)(RayWorker)
    actors = {}
    for node in ray.nodes():
        if node["Alive"]:
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            name = f"{node['NodeName']}#{node['NodeID'][:6]}"
            actors[name] = remote.options(scheduling_strategy=place).remote()
    return actors


def chosen(described: dict[str, Description]) -> Target | None:
    """The target that most machines of our versions have; says which others are left out, and why."""
    ours = versions()
    for node, description in list(described.items()):
        if description.versions != ours:
            theirs = " with TVM ".join(description.versions)
            log.warning("node %s is left out: it has version %s, this is %s", node, theirs, " with TVM ".join(ours))
            del described[node]
    counts = Counter(description.target for description in described.values())
    if not counts:
        return None
    wanted = counts.most_common(1)[0][0]
    for node, description in described.items():
        if description.target != wanted:
            log.warning(
                "node %s is left out: it is %s and most are %s; measurements of different machines are not mixed",
                node,
                description.target.fingerprint,
                wanted.fingerprint,
            )
    return wanted


def _end(actor: Any) -> None:
    import ray

    ray.kill(actor)


def disconnect() -> None:
    """Leave the cluster, if one was joined; one that was started for this run ends."""
    ray = sys.modules.get("ray")
    if ray is not None:
        ray.shutdown()
