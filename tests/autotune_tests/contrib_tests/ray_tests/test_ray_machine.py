"""A Ray cluster for real: two nodes on this machine, with candidates that misbehave and workers that die."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autotune.contrib.ray import ray_machine
from autotune.contrib.ray.ray_machine import RayMachine, open_machines
from autotune.contrib.ray.ray_worker import Description, MeasurerOptions, versions
from autotune.host.machine import host_target
from autotune.measure.remote.fleet import FleetMeasurer
from autotune.options import Options
from autotune.tuning.tune import tune
from schedules.vocabulary.errors import MeasureError
from tests.autotune_tests.measure_tests import faults
from tests.autotune_tests.measure_tests.batches import FaultyBatch
from tests.autotune_tests.measure_tests.faults import candidate
from tests.autotune_tests.measure_tests.rpc_server import free_port
from tests.autotune_tests.measure_tests.test_local_measurer import FAULTS, LIMITS, living
from tests.autotune_tests.tiny import save_tiny
from tests.conformance.measurer_suite import MeasurerSuite
from tuning_logs.sql_store import open_log

ray = pytest.importorskip("ray", reason="Ray is not installed; pip install ./autotune/contrib/ray")

OPTIONS = MeasurerOptions(limits=LIMITS, lowering=faults.LOWERING)


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    """A cluster of two nodes on this machine."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster.address
    ray_machine.disconnect()
    cluster.shutdown()


def machines(address: str) -> list[RayMachine]:
    return open_machines(address, options=OPTIONS)


@pytest.fixture(scope="module")
def shared(address: str) -> Iterator[FleetMeasurer]:
    with FleetMeasurer(machines(address)) as fleet:
        yield fleet


class TestRayFleet(FaultyBatch, MeasurerSuite):
    @pytest.fixture
    def measurer(self, shared: FleetMeasurer, address: str, request: pytest.FixtureRequest) -> FleetMeasurer:
        return FleetMeasurer(machines(address)) if request.function.__name__ == "test_close_twice" else shared


def test_both_workers_measure_and_say_who_they_are(shared: FleetMeasurer) -> None:
    measured = shared.measure([candidate(kind) for kind in (*FAULTS, "right")])
    assert [m.error for m in measured] == [*(kind for kind, _ in FAULTS.values()), None]
    assert len({origin.worker for origin in shared.origins}) == 2
    assert {origin.host for origin in shared.origins} == {os.uname().nodename}


def test_finalists_the_untuned_build_objects_and_the_peak(shared: FleetMeasurer) -> None:
    assert all(m.ok for m in shared.rank([candidate("right"), candidate("right otherwise")]))
    assert shared.baseline_s(candidate("right")).ok
    assert shared.objects([candidate("right")])[0].read_bytes().startswith(b"\x7fELF")
    with pytest.raises(MeasureError, match="double does not compile"):
        shared.objects([candidate("illegal")])
    assert shared.roofline().gflops > 0


def ray_workers() -> list[psutil.Process]:
    """Of every fleet that is on."""
    return [p for p in psutil.process_iter(["cmdline"]) if "RayWorker" in " ".join(p.info["cmdline"] or [])]


def test_a_worker_that_is_killed_is_lost_and_what_it_started_ends(address: str) -> None:
    others = {actor.pid for actor in ray_workers()}
    with FleetMeasurer(machines(address)) as fleet:
        assert all(m.ok for m in fleet.measure([candidate("right"), candidate("baseline")]))
        actors = [actor for actor in ray_workers() if actor.pid not in others]
        assert actors
        children = actors[0].children(recursive=True)
        os.kill(actors[0].pid, signal.SIGKILL)
        batch = [candidate("right otherwise"), candidate("incomplete")]
        assert sorted(str(m.error) for m in fleet.measure(batch)) in (
            ["None", "worker_died"],
            ["worker_died", "wrong_result"],
        )
        assert fleet.rank([candidate("right")])[0].ok
    assert not living(children)


def test_a_run_has_the_records_of_both_workers(tmp_path: Path, address: str) -> None:
    ray_machine.disconnect()
    where = {"out": tmp_path / "a", "log": tmp_path / "t.db"}
    result = tune(save_tiny(tmp_path / "tiny.onnx"), Options(**where, cluster=address, trials=8, batch=4, threads=1))
    assert result.measured_trials == 8
    assert result.verified is not None
    assert result.verified.passed
    log = open_log(tmp_path / "t.db")
    records = [record for record in log.records() if record.config.space != "baseline"]
    log.close()
    assert {record.host for record in records} == {os.uname().nodename}
    assert len({record.provenance["worker"] for record in records}) == 2
    assert {record.key.target for record in records} == {host_target(1).fingerprint}


def test_no_cluster_is_one_line() -> None:
    ray_machine.disconnect()
    with pytest.raises(MeasureError, match=r"there is no Ray cluster at 127.0.0.1:.*refused.*--cluster local"):
        open_machines(f"127.0.0.1:{free_port()}")


def test_machines_that_differ_are_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    target = host_target(1)
    here = Description("ada", target, versions())
    described = {
        "ada": here,
        "bob": replace(here, host="bob"),
        "eve": replace(here, host="eve", target=replace(target, l2_bytes=1 << 30)),
        "old": replace(here, host="old", versions=("0.0.1", "0.20.0")),
    }
    with caplog.at_level(logging.WARNING):
        assert ray_machine.chosen(described) == target
    assert [line.split()[1] for line in caplog.messages] == ["old", "eve"]
    assert "0.20.0" in caplog.messages[0]
    assert "not mixed" in caplog.messages[1]
    assert ray_machine.chosen({}) is None
