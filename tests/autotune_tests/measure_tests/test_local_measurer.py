from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autotune.host.machine import host_target, read_host
from autotune.host.worker_pool import ForkServerProcess
from autotune.measure import local_measurer
from autotune.measure.evaluator import Adaptive, FixedCount
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measure_limits import MeasureLimits, Shared
from autotune.measure.messages import Timed
from schedules.lower import BASELINE
from schedules.vocabulary.errors import MeasureError, UsageError
from tests.autotune_tests.measure_tests import faults
from tests.autotune_tests.measure_tests.batches import FaultyBatch
from tests.autotune_tests.measure_tests.faults import candidate
from tests.conformance.measurer_suite import MeasurerSuite

MIB = 1 << 20
LIMITS = MeasureLimits(compile_s=4.0, run_s=2.0, memory_bytes=512 * MIB)


SERVERS: list[ForkServerProcess] = []
"""The server of this module's measurers; TVM takes more than a second to load."""


@pytest.fixture(scope="module", autouse=True)
def one_server() -> Iterator[None]:
    with ForkServerProcess(variables=local_measurer.ONE_THREAD) as server:
        SERVERS.append(server)
        yield
        SERVERS.clear()


def open_measurer(**options: object) -> LocalMeasurer:
    """A measurer with short limits that lowers misbehaving configs."""
    defaults = {"limits": LIMITS, "lowering": faults.LOWERING, "shared": Shared(server=SERVERS[0] if SERVERS else None)}
    return LocalMeasurer(host_target(), **{**defaults, **options})  # type: ignore[arg-type]


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended within a few seconds."""
    return [process for process in psutil.wait_procs(processes, timeout=5)[1] if process.status() != "zombie"]


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalMeasurer]:
    with open_measurer() as measurer:
        yield measurer


class TestLocalMeasurer(FaultyBatch, MeasurerSuite):
    @pytest.fixture
    def measurer(self, shared: LocalMeasurer, request: pytest.FixtureRequest) -> Iterator[LocalMeasurer]:
        if request.function.__name__ != "test_close_twice":
            yield shared
            return
        with open_measurer() as measurer:
            yield measurer


FAULTS = {
    "segfault": ("worker_died", "SIGSEGV"),
    "run forever": ("timeout", "not done within 2 s"),
    "compile forever": ("timeout", "not done within 4 s"),
    "eat memory at run": ("out_of_memory", "512 MiB"),
    "eat memory at compile": ("out_of_memory", "512 MiB"),
    "wrong": ("wrong_result", "instead of"),
    "incomplete": ("wrong_result", "1 of 4096"),
    "nan": ("wrong_result", "nan instead of"),
    "drops NaN": ("wrong_result", "1 of 4096 outputs differ from the untuned build where inputs are NaN"),
    "drops infinity": ("wrong_result", "2 of 4096 outputs differ from the untuned build where inputs are NaN"),
    "too far": ("wrong_result", "outside of its tensors"),
    "reads too far": ("wrong_result", "1 of 4096"),
    "illegal": ("lower_error", "choose a divisor"),
    "broken template": ("lower_error", "IndexError"),
    "unknown intrinsic": ("compile_error", "intrinsic"),
}


def test_every_fault_is_recorded_with_its_kind_and_the_rest_of_the_batch_survives() -> None:
    before = psutil.Process().children(recursive=True)
    with open_measurer(shared=Shared()) as measurer:
        *failed, right = measurer.measure([candidate(kind) for kind in (*FAULTS, "right")])
        processes = [p for p in psutil.Process().children(recursive=True) if p not in before]
    assert {kind: m.error for kind, m in zip(FAULTS, failed, strict=True)} == {k: e for k, (e, _) in FAULTS.items()}
    for (kind, (_, words)), measurement in zip(FAULTS.items(), failed, strict=True):
        assert words in measurement.message, kind
    assert right.ok
    assert len(processes) >= 3
    assert not living(processes)


def test_identical_code_is_timed_once(shared: LocalMeasurer) -> None:
    first = shared.measure([candidate("right")])[0]
    again = shared.measure([candidate("right")])[0]
    assert again.latencies_s == first.latencies_s
    assert again.run_s == 0


def test_a_measurement_brings_its_schedule_s_trace_along(shared: LocalMeasurer) -> None:
    right, illegal = shared.measure([candidate("baseline"), candidate("illegal")])
    assert any(step[0] == "GetSBlock" for step in json.loads(right.trace)[0])
    assert illegal.trace == ""


def test_phase_times_add_up(shared: LocalMeasurer) -> None:
    compile_s, measure_s = shared.compile_s, shared.measure_s
    shared.measure([candidate("right"), candidate("baseline")])
    assert shared.compile_s >= compile_s
    assert shared.measure_s > measure_s


def test_the_evaluator_decides_how_many_runs() -> None:
    with open_measurer(evaluator=FixedCount(7)) as measurer:
        assert len(measurer.measure([candidate("right")])[0].latencies_s) == 7


def test_a_contender_is_timed_in_turn_with_the_incumbent() -> None:
    with open_measurer(evaluator=Adaptive(margins=(100.0,), least_runs=8, cap_s=10.0)) as measurer:
        (incumbent,) = measurer.measure([candidate("right")])
        (contender,) = measurer.measure([candidate("right otherwise")], incumbent_s=10 * incumbent.latency_s)
    assert contender.ok
    assert len(contender.latencies_s) >= 8  # nobody is hopeless here, so no fewer than a contender gets


def test_a_best_of_an_earlier_run_is_timed_beside_its_contenders(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_measurer() as measurer:
        run, controls = measurer._run, []

        def noted(*arguments: object) -> list[Timed]:
            controls.append(arguments[-1])
            return run(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(measurer, "_run", noted)
        measurer.measure([candidate("right")], incumbent_s=1e-9)
        measurer.lead(candidate("right"), 1e-9)
        measurer.measure([candidate("right otherwise")], incumbent_s=1e-9)
    # A contender that happens to beat the one it is timed beside is timed again.
    alone, beside, *_confirmations = controls
    assert alone is None
    assert beside[1] == candidate("right").config


@pytest.mark.parametrize(
    ("timings", "believed", "taken"),
    [
        ([0.5, 0.8, 0.7], 0.8, 3),
        ([0.5, 1.2, 0.7], 1.2, 2),
        ([1.1, 0.5, 0.5], 1.1, 1),
    ],
)
def test_a_config_that_beats_the_incumbent_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, timings: list[float], believed: float, taken: int
) -> None:
    with open_measurer() as measurer:
        (incumbent,) = measurer.measure([candidate("right")])
        run, left = measurer._run, [incumbent.latency_s * share for share in timings]

        def timed(*arguments: object) -> list[Timed]:
            (result,) = run(*arguments)  # type: ignore[arg-type]
            return [replace(result, latencies_s=(left.pop(0),))]

        monkeypatch.setattr(measurer, "_run", timed)
        (confirmed,) = measurer.measure([candidate("right otherwise")], incumbent_s=incumbent.latency_s)
    assert confirmed.latency_s == pytest.approx(believed * incumbent.latency_s)
    assert len(timings) - len(left) == taken


def test_rank_times_finalists_interleaved_and_in_order(shared: LocalMeasurer) -> None:
    kinds = ("right", "illegal", "baseline", "right")
    ranked = shared.rank([candidate(kind) for kind in kinds])
    assert [measurement.error for measurement in ranked] == [None, "lower_error", None, None]
    assert ranked[0].latencies_s == ranked[3].latencies_s
    assert ranked[0].code_hash != ranked[2].code_hash
    rounds = [len(measurement.latencies_s) for measurement in ranked if measurement.ok]
    assert max(rounds) >= 15, "which finalist is dropped early depends on the machine"
    assert min(rounds) >= 4
    assert shared.rank([]) == []


def test_the_untuned_build_has_a_latency(shared: LocalMeasurer) -> None:
    untuned = shared.baseline_s(candidate("right"))
    assert untuned.ok
    assert untuned == shared.baseline_s(candidate("right"))


def test_an_idle_builder_builds_what_is_expected_next() -> None:
    with open_measurer() as measurer:
        first = candidate("right")
        waiting = [replace(first, task=replace(first.task, key=f"{index:016x}"), config=BASELINE) for index in range(9)]
        measurer.expect([replace(first, config=BASELINE), *waiting])
        measured = measurer.measure([first, candidate("right otherwise")])  # and the untuned build: three jobs
        assert all(one.ok for one in measured)
        built = [key for key, config in measurer._libraries if config == BASELINE]
        assert built == [
            first.task.key,
            *(upcoming.task.key for upcoming in waiting[: -3 % len(measurer._builders.workers)]),
        ]
        assert measurer.baseline_s(waiting[0]).ok


def test_every_core_builds_and_one_worker_times_whatever_threads_kernels_have(monkeypatch: pytest.MonkeyPatch) -> None:
    host = replace(read_host(), cores=(0, 1), quota=None)
    monkeypatch.setattr(local_measurer, "read_host", lambda: host)
    with LocalMeasurer(host_target(1), limits=LIMITS, lowering=faults.LOWERING) as measurer:
        assert len(measurer._builders.workers) == 2
        assert len(measurer._timers.workers) == 1
        assert all(one.ok for one in measurer.measure([candidate("right"), candidate("baseline")]))


def test_measurers_of_a_run_share_a_server_and_end_by_themselves() -> None:
    with ForkServerProcess() as server:
        one, two = (
            LocalMeasurer(host_target(n), limits=LIMITS, lowering=faults.LOWERING, shared=Shared(server=server))
            for n in (1, 2)
        )
        crashed, right = one.measure([candidate("segfault"), candidate("right")])
        assert (crashed.error, right.ok) == ("worker_died", True)
        one.close()
        assert not one._directory.exists()
        assert two.measure([candidate("right")])[0].ok
        two.close()
        children = psutil.Process(server._process.pid).children() if server._process else []
        assert not living(children)


def test_after_close_nothing_is_measured_and_one_line_says_so() -> None:
    measurer = open_measurer()
    measurer.close()
    with pytest.raises(MeasureError, match="closed"):
        measurer.measure([candidate("right")])


def test_a_worker_that_cannot_start_is_an_error_with_its_reason() -> None:
    with (
        open_measurer(lowering="tests.no_such_module:lower", shared=Shared()) as measurer,
        pytest.raises(MeasureError, match="no_such_module"),
    ):
        measurer.measure([candidate("right")])


def test_an_unknown_evaluator_starts_nothing() -> None:
    before = psutil.Process().children()
    with pytest.raises(UsageError, match="evaluator exact: unknown"):
        open_measurer(evaluator="exact")
    assert psutil.Process().children() == before


SCRIPT = """
import sys
from tests.autotune_tests.measure_tests.faults import candidate
from tests.autotune_tests.measure_tests.test_local_measurer import open_measurer
from autotune.measure.measure_limits import MeasureLimits

with open_measurer(limits=MeasureLimits(60, 60)) as measurer:
    measurer.measure([candidate("right")])
    print("measuring", flush=True)
    measurer.measure([candidate(sys.argv[1])])
"""


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("kind", ["run forever", "compile forever"])
def test_nothing_outlives_the_measuring_process(blow: signal.Signals, kind: str, tmp_path: Path) -> None:
    command = ["env", f"TMPDIR={tmp_path}", sys.executable, "-c", SCRIPT, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "measuring\n"
        time.sleep(0.3)
        workers = psutil.Process(parent.pid).children(recursive=True)
        parent.send_signal(blow)
        _, errors = parent.communicate(timeout=10)
    assert len(workers) >= 3
    assert not living(workers)
    assert list(tmp_path.iterdir()) == []
    assert errors.count("Traceback") == (1 if blow == signal.SIGINT else 0)  # the parent's own KeyboardInterrupt


def test_the_temporary_directory_is_removed() -> None:
    with open_measurer() as measurer:
        measurer.measure([candidate("right")])
        assert any(measurer._directory.iterdir())
    assert not measurer._directory.exists()


def test_workers_import_no_more_than_they_need() -> None:
    unwanted = "[m for m in ('onnx', 'xgboost', 'sklearn') if m in sys.modules]"
    check = f"import sys, autotune.host.fork_server, autotune.measure.kernel_handler; print({unwanted})"
    output = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
