"""RpcMeasurer: candidates built here and timed on a device that TVM's RPC tracker knows.

All that decides is LocalMeasurer's: limits, checks against the untuned build, racing, identical code timed once. Only
the one worker that runs candidates does so over there (``remote_bench.py``), in a session that ends with whatever kills
it.
"""

from __future__ import annotations

import ipaddress
import logging

from autotune.host.machine import read_host
from autotune.measure.evaluator import Evaluator
from autotune.measure.local_measurer import LOWERING, LocalMeasurer, Site
from autotune.measure.remote.remote_host import RemoteHost
from autotune.measure.remote.rpc_session import SLACK_S, Address

log = logging.getLogger(__name__)


class RpcMeasurer(LocalMeasurer):
    """Measures on one device.

    Args:
        address: of the tracker.
        host: what the device is, as ``look_at`` found it.

    The others are ``LocalMeasurer``'s.

    Attributes:
        address, host: as given.
    """

    def __init__(
        self,
        address: Address,
        host: RemoteHost,
        *,
        evaluator: str | Evaluator = "adaptive",
        seed: int = 0,
        compile_timeout_s: float = 6.0,
        run_timeout_s: float = 60.0,
        memory_bytes: int | None = None,
        cold: bool = True,
        lowering: str = LOWERING,
    ) -> None:
        site = Site(str(address), host.cores, host.memory_bytes, SLACK_S, read_host().usable_threads)
        super().__init__(
            host.target,
            evaluator=evaluator,
            seed=seed,
            compile_timeout_s=compile_timeout_s,
            run_timeout_s=run_timeout_s,
            memory_bytes=memory_bytes,
            cold=cold,
            lowering=lowering,
            site=site,
        )
        self.address = address
        self.host = host


def warn_of_plain_text(address: Address) -> None:
    """Say that RPC beyond this machine is not for networks that others are on."""
    try:
        safe = address.host == "localhost" or ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        safe = False
    if not safe:
        log.warning(
            "RPC to %s is plain text, and whoever reaches its port controls that machine; docs/fleet.md shows a tunnel",
            address.host,
        )
