"""RPC devices as machines of a fleet: candidates are built here and timed on a device that TVM's RPC tracker knows.

All that decides is ``LocalMeasurer``'s: limits, checks against the untuned build, racing, identical code timed once.
Only the one worker process that runs candidates does so on the device (``rpc_timing.py``), in a session that ends with
whatever kills it.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import Any

from autotune.host.machine import host_target, is_foreign, read_host
from autotune.host.roofline import Roofline, measure_roofline
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measure_limits import RemoteTarget
from autotune.measure.measurer import Origin
from autotune.measure.remote.measuring_worker import MachineLost, MeasuringWorker
from autotune.measure.remote.remote_host import RemoteHost, roofline_of
from autotune.measure.remote.rpc_session import SLACK_S, Address
from schedules.vocabulary.errors import CompileError, MeasureError

log = logging.getLogger(__name__)

HANDLER = "autotune.measure.remote.rpc_timing:RemoteHandler"


def remote_target(address: Address, host: RemoteHost) -> RemoteTarget:
    """The device at ``address``, for ``LocalMeasurer``; ``host`` as ``look_at`` found it."""
    return RemoteTarget(HANDLER, str(address), host.cores, host.memory_bytes, SLACK_S)


class RpcMachine:
    """One device.

    Args:
        measurer: measures on it; closed with the machine.
    """

    def __init__(self, address: Address, host: RemoteHost, measurer: LocalMeasurer) -> None:
        self.origin = Origin(host.name, f"rpc {address}")
        self.target = host.target
        self._address = address
        self._host = host
        self._worker = MeasuringWorker(measurer, self._roofline)

    def call(self, method: str, *arguments: Any) -> Any:
        """See ``RemoteMachine.call``."""
        try:
            return getattr(self._worker, method)(*arguments)
        except CompileError:
            raise
        except MeasureError as error:
            raise MachineLost(str(error)) from error

    def close(self) -> None:
        """End the workers here; the device's session ends with them."""
        self._worker.close()

    def _roofline(self) -> Roofline:
        """The device's; if it is a machine like this one, this machine's."""
        target = self.target
        if (
            not is_foreign(target.architecture)
            and self._host.cpu == read_host().model
            and target == host_target(target.threads, target.isa)
        ):
            return measure_roofline(target)
        return roofline_of(self._address, self._host)


def warn_of_plain_text(address: Address) -> None:
    """Log a warning if RPC to ``address`` leaves this machine: it is neither encrypted nor authenticated."""
    try:
        safe = address.host == "localhost" or ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        safe = False
    if not safe:
        log.warning(
            "RPC to %s is plain text, and whoever reaches its port controls that machine; use a tunnel",
            address.host,
        )
