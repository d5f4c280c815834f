"""Machines of a Ray cluster as machines of a fleet: one actor per node.

Actors request no CPUs, so that Ray never queues them behind other work. That nothing else runs while one times is
ensured by ``machine_lock.py`` among measurers, and otherwise by whoever submits work to the cluster.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autotune.contrib.ray.ray_worker import Description, MeasurerOptions, RayWorker, versions
from autotune.measure.measurer import Origin
from autotune.measure.remote.measuring_worker import MachineLost
from schedules.target import Target
from schedules.vocabulary.errors import AutotuneError, CompileError, InstallError, MeasureError, first_line, lines_of

log = logging.getLogger(__name__)

LOCAL = "local"
"""``--cluster local``: a cluster of this machine alone, started and ended with the run."""

CONNECT_S = 10.0
"""Seconds to wait for the port of a cluster. Heuristic, not measured."""

START_S = 120.0
"""Seconds in which a node must start a worker, which imports TVM. Heuristic, not measured."""

ANSWER_S = 900.0
"""Seconds after which a machine that has not answered is lost; the limits of every candidate are far below."""


class RayMachine:
    """One node's worker.

    Args:
        actor: Ray's handle of a ``RayWorker`` that is open.
        description: what it said of itself.
        node: Ray's name of the node.
    """

    def __init__(self, actor: Any, description: Description, node: str) -> None:
        self.origin = Origin(description.host, f"ray {node}")
        self.target = description.target
        self._actor = actor
        self._closed = False

    def call(self, method: str, *arguments: Any) -> Any:
        """See ``RemoteMachine.call``."""
        return answer_of(self._actor.call.remote(method, *arguments), ANSWER_S)

    def close(self) -> None:
        """End the actor; what it started ends with it."""
        import ray

        if not self._closed:
            self._closed = True
            if ray.is_initialized():  # else it ended with the connection
                ray.kill(self._actor)


def answer_of(reference: Any, timeout_s: float) -> Any:
    """The answer of a worker.

    Raises:
        MachineLost: if it died, cannot be reached, does not answer in time, or measuring there is broken.
        AutotuneError: any other error of ours that it raised.
    """
    import ray

    try:
        return ray.get(reference, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError as error:
        raise MachineLost(f"no answer within {timeout_s:.0f} s") from error
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        broken = isinstance(cause, MeasureError) and not isinstance(cause, CompileError)
        if broken or isinstance(cause, OSError):
            raise MachineLost(str(cause)) from error
        if isinstance(cause, AutotuneError):
            raise cause from error
        raise
    except ray.exceptions.RayError as error:
        raise MachineLost(_cause(error)) from error


def _cause(error: BaseException) -> str:
    """The line of Ray's text that names an error, else its first one."""
    named = [line for line in lines_of(error) if "Error" in line and "File" not in line]
    return named[-1][:300] if named else first_line(error)


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
            f"there is no Ray cluster at {address} ({_cause(error)}); start one with 'ray start --head', "
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
    threads: int | None = None,
    isa: str | None = None,
    options: MeasurerOptions = MeasurerOptions(),  # noqa: B008 - frozen
) -> list[RayMachine]:
    """Workers of the cluster's machines, all of one target: the one that most have; the others are named and left out.

    Args:
        threads, isa: as for ``host_target``, on every machine.
        options: of the workers' measurers.

    Raises:
        InstallError: if Ray is not installed here.
        MeasureError: if there is no cluster, or no machine of it can measure.
    """
    connect(address)
    import ray

    actors = _actors()
    described: dict[str, Description] = {}
    for node, actor in actors.items():
        with _left_out(node):
            described[node] = answer_of(actor.describe.remote(threads, isa), START_S)
    wanted = chosen(described)
    machines = []
    for node, actor in actors.items():
        if wanted is None or node not in described or described[node].target != wanted:
            ray.kill(actor)
            continue
        with _left_out(node):
            answer_of(actor.open.remote(wanted, options), START_S)
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


def disconnect() -> None:
    """Leave the cluster, if one was joined; one that was started for this run ends."""
    ray = sys.modules.get("ray")
    if ray is not None:
        ray.shutdown()
