"""Results as lines for people."""

from dataclasses import replace
from pathlib import Path

from autotune.cli.text import bench_lines, kernel_lines, lane_lines, memory_line, run_lines, verdict_line
from autotune.report.inspect_kernels import Kernel
from autotune.report.inspect_lanes import LaneReport, LaneRow
from autotune.tuning.result import Result
from autotune.validation.bench import BenchResult
from autotune.validation.bench_process import EngineTimes
from autotune.validation.verdict import Verdict
from schedules.config import Config
from schedules.task import Task

PASSED = Verdict("onnxruntime 1.0", 1e-6, 1e-5, True)
TASK = Task("aa11", "fused_conv", "conv2d", "conv2d", ((1,), (1,)), ("float32", "float32"), (), 2_000_000, 8, 3)


def result(**changed):
    plain = Result("m.onnx", Path("m.tuned"), "cpu", 1, 5, 10, 2, 3, 12.0, {"import": 1.0}, {"tuned": 1.0})
    return replace(plain, **changed)


def test_a_run_says_what_was_measured_and_how_fast_it_is():
    lines = run_lines(result(reason="the budget is spent", verified=PASSED, latency_ms={"untuned": 2.0, "tuned": 1.0}))
    assert lines == [
        "m.tuned: 5 tasks of m.onnx for cpu",
        "10 trials measured (2 failed), 3 records reused; stopped: the budget is spent",
        "latency 1.000 ms, untuned 2.000 ms",
        "outputs match onnxruntime 1.0: largest error 1e-06 absolute, 1e-05 relative",
        "12.0 s (import 1.0)",
    ]


IN_TURN = {
    "engines": [{"name": "tune", "p50_ms": 2.586}, {"name": "onnxruntime", "p50_ms": 4.084}],
    "speedup": {"onnxruntime": 1.579},
    "others_cpu": 0.01,
}


def test_a_run_ends_with_its_speed_measured_in_turn():
    verified = result(verified=PASSED, latency_ms={"untuned": 9.0, "tuned": 3.98})
    lines = run_lines(verified, IN_TURN)
    assert lines[-1] == "2.59 ms, 1.58 times as fast as ONNX Runtime (4.08 ms, in turn)"
    assert not any("3.98" in line for line in lines), "a timing of another minute contradicts it"
    disturbed = run_lines(verified, {**IN_TURN, "others_cpu": 0.5})
    assert disturbed[-2:] == ["warning: other processes used 50% of the CPU; results may be unreliable", lines[-1]]
    alone = {**IN_TURN, "engines": IN_TURN["engines"][:1]}
    assert "latency 3.980 ms, untuned 9.000 ms" in run_lines(verified, alone)


def test_an_artifact_that_nobody_verified_says_so():
    assert "outputs NOT VERIFIED: no device" in run_lines(result(reason="no device"))
    assert not any("NOT VERIFIED" in line for line in run_lines(result(reason="x", parts=(result(),))))


def test_operators_of_fallback_partitions_are_named():
    assert any(
        "ONNX Runtime runs NonZero, Unique, " in line
        for line in run_lines(result(fallback_partitions=(("NonZero", "Unique"),)))
    )


def test_a_verdict_that_failed_says_where_it_differs():
    failed = replace(PASSED, passed=False, mismatch="output 0 is float32(1,), not float32(2,)")
    assert verdict_line(failed) == "outputs DIFFER from onnxruntime 1.0: output 0 is float32(1,), not float32(2,)"


def test_a_bound_from_the_model_s_own_arithmetic_is_told():
    told = verdict_line(replace(PASSED, bound="fp64", allowed="3 times the distance"))
    assert told.endswith("1e-05 relative; allowed is 3 times the distance")


def test_engines_are_compared_and_a_disturbance_is_reported():
    engines = tuple(
        EngineTimes(name, "1.0", "fp32", [[seconds], [seconds]]) for name, seconds in (("tune", 1e-3), ("other", 2e-3))
    )
    quiet = BenchResult(Path("m.tuned"), "m.onnx", 1, engines, 0.0)
    lines = bench_lines(quiet)
    assert lines[0].startswith("m.onnx: 1 threads, 2 rounds")
    assert "2.000 (2.000 to 2.000)" in lines[3]
    assert not any("warning" in line for line in lines)
    assert bench_lines(replace(quiet, others_cpu=0.5))[-1] == (
        "warning: other processes used 50% of the CPU; results may be unreliable"
    )


def test_peak_memory_and_the_fastest_way_are_said():
    engines = (
        EngineTimes("tune", "1.0", "fp32", [[1e-3]], memory=(12_000_000, 7_000_000)),
        EngineTimes("other-best", "1.0", "fp32", [[2e-3]], way="other-quiet"),
    )
    lines = bench_lines(BenchResult(Path("m.tuned"), "m.onnx", 1, engines, 0.0))
    assert lines[1].index("load MB") < lines[1].index("serving MB")
    assert lines[2].split()[-2:] == ["12", "7"]
    assert "–" in lines[3]
    assert "other-best ran as other-quiet, its fastest way" in lines


def test_memory_of_an_artifact_is_a_line():
    assert memory_line({"weights_bytes": 45_300_000, "arena_bytes": 1_200_000}) == (
        "weights 45.3 MB; other tensors 1.2 MB for each stream"
    )


def test_kernels_are_a_table_or_their_code():
    kernel = Kernel(TASK, Config("conv2d/1", (("x", 1),)), 1e-5)
    (_, row) = kernel_lines([kernel])
    assert row.split()[:5] == ["aa11", "fused_conv", "3", "10.0", "200"]
    assert "–" in kernel_lines([replace(kernel, latency_s=None)])[1]
    comment, code = kernel_lines([replace(kernel, code="ret\n")])
    assert comment.startswith("; aa11 fused_conv")
    assert code == "ret"


def test_lanes_without_their_device_are_not_measured():
    row = LaneRow("0", "0.trunk", "cuda:0", 4, (0.0, 1e-3), (None, None))
    *_, line = lane_lines(LaneReport("m.tuned", (row,), 1e-3, None, 2e-3))
    assert line == (
        "1 subgraphs on 1 lanes: predicted 1.000 ms, not measured: its device is not here; "
        "one lane took 2.000 ms when this was chosen"
    )
