"""RPC devices for real: TVM's tracker and servers on loopback, with candidates that misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autotune.host.machine import host_target, read_host
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.remote.fleet import FleetMeasurer
from autotune.measure.remote.remote_host import RemoteHost, look_at
from autotune.measure.remote.rpc_machine import RpcMachine, remote_target, warn_of_plain_text
from autotune.measure.remote.rpc_session import Address, request
from autotune.options import Options
from autotune.tuning.tune import tune
from schedules.vocabulary.errors import MeasureError, UsageError
from tests.autotune_tests.measure_tests import faults, rpc_server
from tests.autotune_tests.measure_tests.batches import FaultyBatch
from tests.autotune_tests.measure_tests.faults import candidate
from tests.autotune_tests.measure_tests.test_local_measurer import FAULTS, LIMITS, living
from tests.autotune_tests.tiny import save_tiny
from tests.conformance.measurer_suite import MeasurerSuite
from tuning_logs.sql_store import open_log

pytest.importorskip("tornado", reason="TVM's RPC tracker needs tornado")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rpc")


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    with rpc_server.tracker(folder) as port:
        yield port


@pytest.fixture(scope="module")
def board(folder: Path, port: int) -> Iterator[Address]:
    """The address of one device."""
    with rpc_server.device(folder, port, "board"):
        yield Address("127.0.0.1", port, "board")


@pytest.fixture(scope="module")
def host(board: Address) -> RemoteHost:
    return look_at(board)


def open_measurer(board: Address, host: RemoteHost) -> LocalMeasurer:
    """A measurer with short limits that lowers misbehaving configs."""
    return LocalMeasurer(host.target, limits=LIMITS, lowering=faults.LOWERING, remote=remote_target(board, host))


@pytest.fixture(scope="module")
def shared(board: Address, host: RemoteHost) -> Iterator[LocalMeasurer]:
    with open_measurer(board, host) as measurer:
        yield measurer


class TestRpcDevice(FaultyBatch, MeasurerSuite):
    @pytest.fixture
    def measurer(
        self, shared: LocalMeasurer, board: Address, host: RemoteHost, request: pytest.FixtureRequest
    ) -> object:
        return open_measurer(board, host) if request.function.__name__ == "test_close_twice" else shared


def test_the_device_is_what_its_own_files_say(host: RemoteHost) -> None:
    assert host.target == host_target()
    assert host.cpu == read_host().model
    assert host.memory_bytes == psutil.virtual_memory().total


def test_every_fault_is_recorded_as_here_and_the_device_survives(shared: LocalMeasurer, host: RemoteHost) -> None:
    *failed, right = shared.measure([candidate(kind) for kind in (*FAULTS, "right")])
    assert {kind: m.error for kind, m in zip(FAULTS, failed, strict=True)} == {k: e for k, (e, _) in FAULTS.items()}
    for (kind, (_, words)), measurement in zip(FAULTS.items(), failed, strict=True):
        assert words in measurement.message, kind
    assert right.ok
    assert shared.ran_on == host.name


def test_finalists_are_ranked_and_the_untuned_build_has_a_latency(shared: LocalMeasurer) -> None:
    ranked = shared.rank([candidate(kind) for kind in ("right", "illegal", "right otherwise")])
    assert [measurement.error for measurement in ranked] == [None, "lower_error", None]
    assert len(ranked[0].latencies_s) >= 15
    assert shared.baseline_s(candidate("right")).ok
    assert shared.objects([candidate("right")])[0].read_bytes().startswith(b"\x7fELF")


def test_no_tracker_is_one_line_that_names_it() -> None:
    address = Address("127.0.0.1", rpc_server.free_port(), "board")
    with pytest.raises(MeasureError, match=rf"tracker at 127.0.0.1:{address.port} cannot be reached .*refused.*start"):
        look_at(address)


def test_an_unknown_key_is_one_line_with_those_known(board: Address) -> None:
    with pytest.raises(MeasureError, match=r"no device 'phone' \(it has board\)"):
        look_at(replace(board, key="phone"))


def test_another_kind_of_device_than_the_run_is_for_is_refused(board: Address, host: RemoteHost) -> None:
    other = replace(host, target=replace(host.target, l2_bytes=2 * host.target.l2_bytes))
    with (
        open_measurer(board, other) as measurer,
        pytest.raises(MeasureError, match="give machines that differ keys of their own"),
    ):
        measurer.measure([candidate("right")])


def test_a_device_has_not_more_cpus_than_it_has(board: Address) -> None:
    with pytest.raises(UsageError, match="--threads 4096"):
        look_at(board, threads=4096)


def test_beyond_loopback_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_plain_text(Address("127.0.0.1", 9190, "board"))
    warn_of_plain_text(Address("localhost", 9190, "board"))
    assert not caplog.records
    warn_of_plain_text(Address("build.example", 9190, "board"))
    assert "plain text" in caplog.text


def test_a_device_that_others_use_is_waited_for_and_then_named(board: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.measure.remote.rpc_session.FREE_S", 0.5)
    held = request(board)
    with pytest.raises(MeasureError, match=r"no device 'board' .* answered within"):
        request(board)
    del held


def test_one_of_two_devices_dies_and_the_other_goes_on(folder: Path, port: int) -> None:
    left, right = Address("127.0.0.1", port, "left"), Address("127.0.0.1", port, "right")
    with rpc_server.device(folder, port, "left") as first, rpc_server.device(folder, port, "right") as second:
        host = look_at(left)
        with FleetMeasurer(
            [RpcMachine(address, host, open_measurer(address, host)) for address in (left, right)]
        ) as fleet:
            before = fleet.measure([candidate(kind) for kind in ("right", "wrong", "baseline", "right otherwise")])
            assert [measurement.error for measurement in before] == [None, "wrong_result", None, None]
            assert {origin.worker for origin in fleet.origins} == {f"rpc {left}", f"rpc {right}"}
            rpc_server.end(first)
            after = fleet.measure([candidate("incomplete"), candidate("nan")])
            assert [measurement.error for measurement in after] == ["worker_died", "wrong_result"]
            assert "lost while it measured this: the RPC tracker" in after[0].message
            assert fleet.rank([candidate("right")])[0].ok
            rpc_server.end(second)
            with pytest.raises(MeasureError, match="no machine is left to measure on"):
                fleet.rank([candidate("right")])
        assert not living([p for p in psutil.Process().children() if str(left) in " ".join(p.cmdline())])


def test_a_run_on_a_device_verifies_here_and_its_records_name_the_device(
    tmp_path: Path, board: Address, host: RemoteHost
) -> None:
    options = Options(out=tmp_path / "a", log=tmp_path / "t.db", rpc=str(board), trials=4, batch=2, searcher="random")
    result = tune(save_tiny(tmp_path / "tiny.onnx"), options)
    assert result.measured_trials == 4
    assert result.verified is not None
    assert result.verified.passed
    log = open_log(tmp_path / "t.db")
    records = list(log.records())
    log.close()
    assert {(record.host, record.provenance["worker"]) for record in records} == {(host.name, f"rpc {board}")}
    assert {record.key.target for record in records} == {host.target.fingerprint}
