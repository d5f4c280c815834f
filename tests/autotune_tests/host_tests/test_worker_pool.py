"""Jobs in workers that crash, hang, hoard and refuse."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autotune.host.fork_server import Start
from autotune.host.worker_pool import ForkServerProcess, Lost, WorkerPool, run_alone
from schedules.vocabulary.errors import MeasureError, UsageError
from tests.autotune_tests.host_tests.faulty_handler import HANDLER, FaultyJob


@pytest.fixture(scope="module")
def marker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pool") / "marker"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServerProcess]:
    with ForkServerProcess() as server:
        yield server


@pytest.fixture(scope="module")
def start(marker: Path) -> Start:
    return Start(HANDLER, str(marker))


@pytest.fixture
def pool(server: ForkServerProcess, start: Start) -> WorkerPool:
    return WorkerPool(server, start, 2)


def test_answers_are_in_the_order_of_jobs_and_workers_stay(pool: WorkerPool, marker: Path) -> None:
    answers = pool.run([FaultyJob()] * 5)
    assert {settings for _, settings in answers} == {str(marker)}
    assert {pid for pid, _ in answers} <= {worker.pid for worker in pool.workers}
    assert pool.run([]) == []


def test_faults_are_lost_and_the_others_answered(pool: WorkerPool) -> None:
    jobs = [FaultyJob(what="die"), FaultyJob(), FaultyJob(what="hang", timeout_s=0.3), FaultyJob(what="raise")]
    died, fine, hung, raised = pool.run(jobs)
    assert isinstance(died, Lost)
    assert (died.error, died.message) == ("worker_died", "the worker died of SIGSEGV")
    assert isinstance(fine, tuple)
    assert hung == Lost("timeout", "not done within 0.3 s", 0.3)
    assert isinstance(raised, Lost)
    assert raised.message.startswith("the worker died of exit status 1:")
    assert "RuntimeError: a bug" in raised.message


def test_a_job_whose_worker_dies_is_given_to_a_fresh_one(pool: WorkerPool, marker: Path) -> None:
    (answer,) = pool.run([FaultyJob(what="die once")])
    assert isinstance(answer, tuple)
    assert marker.exists()


def test_fresh_workers_are_no_forks_and_fail_alike(server: ForkServerProcess, start: Start, marker: Path) -> None:
    pool = WorkerPool(server, start, 1, fresh=True)
    pid, settings = pool.run([FaultyJob()])[0]
    assert psutil.Process(pid).cmdline()[-1].endswith(".pickle")
    assert settings == str(marker)
    died, fine = pool.run([FaultyJob(what="die"), FaultyJob()])
    assert isinstance(died, Lost)
    assert died.message == "the worker died of SIGSEGV"
    assert fine[0] != pid


def test_one_try_is_one_worker(server: ForkServerProcess, start: Start, marker: Path) -> None:
    marker.unlink(missing_ok=True)
    (answer,) = WorkerPool(server, start, 1, tries=1).run([FaultyJob(what="die once")])
    assert isinstance(answer, Lost)


def test_memory_beyond_the_limit_is_not_granted(pool: WorkerPool) -> None:
    fine, hoarding = pool.run([FaultyJob(what="hoard"), FaultyJob(what="hoard", memory_bytes=1 << 28)])
    assert isinstance(fine, tuple)
    assert isinstance(hoarding, Lost)
    assert "MemoryError" in hoarding.message


def test_a_refusal_is_raised_and_the_pool_goes_on(pool: WorkerPool) -> None:
    with pytest.raises(UsageError, match="give another job"):
        pool.run([FaultyJob(what="refuse"), FaultyJob(what="hang")])
    assert isinstance(pool.run([FaultyJob()])[0], tuple)


def test_a_handler_that_cannot_be_constructed_is_an_error_with_its_reason() -> None:
    with pytest.raises(MeasureError, match="these settings are broken"):
        run_alone(HANDLER, "broken", FaultyJob())


def test_pools_of_several_handlers_share_a_server(server: ForkServerProcess, start: Start, marker: Path) -> None:
    """A handler that cannot be constructed, workers that die and pools that end leave the others at work."""
    first, second = WorkerPool(server, start, 1), WorkerPool(server, Start(HANDLER, "other"), 2)
    with pytest.raises(MeasureError, match="these settings are broken"):
        WorkerPool(server, Start(HANDLER, "broken"), 1).run([FaultyJob()])
    assert first.run([FaultyJob()])[0][1] == str(marker)
    died, (pid, settings) = second.run([FaultyJob(what="die"), FaultyJob()])
    assert isinstance(died, Lost)
    assert settings == "other"
    told = WorkerPool(server, Start(HANDLER, "told", {"TUNE_TEST": "8"}), 1, fresh=True)
    assert told.run([FaultyJob(what="variable")]) == ["8"]
    assert first.run([FaultyJob(what="variable")]) == [None]
    second.close()
    second.close()
    assert not psutil.pid_exists(pid)
    assert first.run([FaultyJob()])[0][1] == str(marker)


def test_run_alone_leaves_no_process() -> None:
    before = set(psutil.Process().children(recursive=True))
    pid, settings = run_alone(HANDLER, "settings", FaultyJob())
    assert settings == "settings"
    assert not psutil.pid_exists(pid)
    assert set(psutil.Process().children(recursive=True)) <= before


def test_after_close_the_directory_is_gone_and_nothing_starts(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    server, start = ForkServerProcess(directory), Start(HANDLER, "settings")
    assert isinstance(WorkerPool(server, start, 1).run([FaultyJob()])[0], tuple)
    assert list(directory.iterdir())
    server.close()
    server.close()
    assert not directory.exists()
    with pytest.raises(MeasureError, match="is gone"):
        WorkerPool(server, start, 1)
    with pytest.raises(MeasureError, match="is gone"):
        WorkerPool(server, Start(HANDLER, "others"), 1)


def test_a_server_that_still_loads_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.host.worker_pool.END_TIMEOUT_S", None)
    folder = tmp_path / "server"
    folder.mkdir()
    server = ForkServerProcess(folder)
    worker = server.spawn(Start("tests.autotune_tests.host_tests.slow_handler:SlowHandler", None))
    server.close()
    assert server._process.returncode == -signal.SIGKILL
    assert not worker.pid
    assert not folder.exists()
