"""The machines that a run measures on: this one, those of a Ray cluster, or RPC devices."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, ExitStack

from autotune.contributions import contribution
from autotune.host.machine import host_target, is_foreign, read_host
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.remote.fleet import FleetMeasurer
from autotune.measure.remote.remote_host import look_at
from autotune.measure.remote.rpc_machine import RpcMachine, remote_target, warn_of_plain_text
from autotune.measure.remote.rpc_session import parse_address, tracked
from autotune.options import Options
from schedules.target import Target
from schedules.vocabulary.errors import UsageError

MOST_DEVICES = 8
"""Devices of one key that a run uses; each has a process here that builds for it."""

logger = logging.getLogger(__name__)


class Fleet(AbstractContextManager["Fleet"]):
    """Other machines to measure on, opened.

    Args:
        options: ``cluster`` or ``rpc`` is given.

    Attributes:
        target: what the machines are.
        measurer: measures on them.
        foreign: why what is timed on this machine would say nothing about them; empty if it would.

    Raises:
        AutotuneError: if there are no machines, or this one has their architecture and could not run what is built for
            them. What is built for RPC devices of another one never runs here.
    """

    def __init__(self, options: Options) -> None:
        with ExitStack() as stack:
            self.measurer = _devices(stack, options) if options.rpc else _cluster(stack, options)
            self.target = self.measurer.target
            self._stack = stack.pop_all()
            self.foreign = _foreign(self.target)
        unseen = options.rpc is not None and is_foreign(self.target.architecture)
        if self.target.isa not in read_host().isas and not unseen:
            self.close()
            raise UsageError(
                f"the machines to measure on have {self.target.isa} and this one {read_host().isas[0]}: the artifact "
                """could not be verified here; run this on one of them, or lower them with --target '{"isa": "avx2"}'"""
            )

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End what was started on the machines; safe to call twice."""
        self._stack.close()


def _cluster(stack: ExitStack, options: Options) -> FleetMeasurer:
    assert options.cluster is not None
    ray = contribution("ray", f"--cluster {options.cluster}")
    stack.callback(ray.disconnect)
    measuring = ray.MeasurerOptions(options.evaluator, options.seed)
    machines = ray.open_machines(options.cluster, options.threads, options.isa, measuring)
    names = ", ".join(f"{machine.origin.host} ({machine.origin.worker})" for machine in machines)
    logger.info("measuring on %s, all %s", names, machines[0].target.fingerprint)
    return stack.enter_context(FleetMeasurer(machines))


def _devices(stack: ExitStack, options: Options) -> FleetMeasurer:
    assert options.rpc is not None
    address = parse_address(options.rpc)
    warn_of_plain_text(address)
    _, count = tracked(address)
    host = look_at(address, options.threads, options.isa)
    machines = []
    for _ in range(min(count, MOST_DEVICES)):
        remote = remote_target(address, host)
        measurer = LocalMeasurer(host.target, evaluator=options.evaluator, seed=options.seed, remote=remote)
        stack.callback(measurer.close)
        machines.append(RpcMachine(address, host, measurer))
    logger.info("measuring on %d of %s, the first is %s: %s", count, address, host.name, host.target.fingerprint)
    return stack.enter_context(FleetMeasurer(machines))


def _foreign(target: Target) -> str:
    here = host_target(None, None)
    if target.threads <= len(read_host().allowed):
        here = host_target(target.threads, target.isa if target.isa in read_host().isas else None)
    if here.fingerprint == target.fingerprint:
        return ""
    return f"this machine is {here.fingerprint}, the kernels are for {target.fingerprint}"
