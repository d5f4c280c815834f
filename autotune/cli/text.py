"""Results as lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotune.artifact.precision_choice import precision_of
from autotune.cli.reply import table
from autotune.report.plain_text import day

if TYPE_CHECKING:  # these load TVM, which a mere --help must not
    from autotune.report.inspect_kernels import Kernel
    from autotune.report.inspect_lanes import BranchRow, LaneReport
    from autotune.report.inspect_tasks import ModelReport, TaskReport
    from autotune.tuning.result import Result
    from autotune.validation.bench import BenchResult
    from autotune.validation.bench_clients import ClientsResult
    from autotune.validation.verdict import Verdict

DISTURBED = 0.05
"""Share of the CPUs' time used by other processes above which a bench warns. Heuristic."""


def run_lines(result: Result, in_turn: Mapping[str, Any] | None = None) -> list[str]:
    """Print the result of ``tune run`` or ``tune build``; the line that matters most is the last.

    Args:
        in_turn: the artifact and ONNX Runtime timed in turn, as ``tune bench --json`` states it.
    """
    lines = [f"{result.artifact}: {result.tasks} tasks of {result.model} for {result.target}"]
    lines += [_model_line(part, weight) for part, weight in zip(result.parts, result.weights, strict=False)]
    if result.measured_trials or result.reused_records:
        lines.append(
            f"{result.measured_trials} trials measured ({result.failed_trials} failed), "
            f"{result.reused_records} records reused" + (f"; stopped: {result.reason}" if result.reason else "")
        )
    untuned, tuned = result.latency_ms.get("untuned"), result.latency_ms.get("tuned")
    compared = None if in_turn is None else speed_line(in_turn)
    if tuned is not None and compared is None:  # two timings of different minutes would contradict each other
        kind = "weighted latencies together" if result.weights else "latency"
        lines.append(f"{kind} {tuned:.3f} ms" + (f", untuned {untuned:.3f} ms" if untuned is not None else ""))
    if result.precision is not None:
        lines.append(str(result.precision))
    if result.placement is not None:
        lines += result.placement.lines()
    lines += [
        f"{own.model}: calls of any batch are answered, row by row"
        for own in (result.parts if result.weights else [result])
        if own.any_batch
    ]
    if result.verified is not None:
        lines.append(verdict_line(result.verified))
    elif result.reason and not result.parts:
        lines.append(f"outputs NOT VERIFIED: {result.reason}")
    lines += [
        f"ONNX Runtime runs {', '.join(operators)}, which this program cannot run correctly"
        for operators in result.fallback_partitions
    ]
    times = ", ".join(f"{name} {seconds:.1f}" for name, seconds in result.phase_s.items())
    lines.append(f"{result.elapsed_s:.1f} s ({times})")
    if in_turn is not None:
        lines += disturbance(in_turn["others_cpu"])
    return lines if compared is None else [*lines, compared]


def speed_line(bench: Mapping[str, Any]) -> str | None:
    """Return how fast the artifact is next to ONNX Runtime; None if that was not timed."""
    ours, theirs = bench["engines"][0], next((e for e in bench["engines"] if e["name"] == "onnxruntime"), None)
    if theirs is None:
        return None
    speedup = bench["speedup"]["onnxruntime"]
    return (
        f"{_milliseconds(ours['p50_ms'])}, {speedup:.2f} times as fast as ONNX Runtime "
        f"({_milliseconds(theirs['p50_ms'])}, in turn)"
    )


def _milliseconds(ms: float) -> str:
    return f"{ms:.2f} ms" if ms >= 1 else f"{ms:.3g} ms"


def disturbance(others_cpu: float) -> list[str]:
    """A warning, if other processes used much of the CPUs' time."""
    if others_cpu <= DISTURBED:
        return []
    return [f"warning: other processes used {others_cpu:.0%} of the CPU; results may be unreliable"]


def _model_line(result: Result, weight: int) -> str:
    """One of several models that were tuned together."""
    tuned = result.latency_ms.get("tuned")
    latency = "not timed" if tuned is None else f"{tuned:.3f} ms"
    return f"  {result.artifact}: {result.tasks} tasks, {latency}, weight {weight}"


def verdict_line(verdict: Verdict) -> str:
    """Return how far the outputs are from the reference's, and what is allowed if that is not the fixed tolerance."""
    line = f"outputs {'match' if verdict.passed else 'DIFFER from'} {verdict.reference}: {verdict.difference}"
    return f"{line}; allowed is {verdict.allowed}" if verdict.is_own_arithmetic else line


def bench_lines(result: BenchResult) -> list[str]:
    """The engines beside each other."""
    data = result.to_data()
    rows: list[list[str]] = []
    for engine in data["engines"]:
        times = [f"{engine[key]:.3f}" for key in ("min_ms", "p50_ms", "mean_ms", "p90_ms", "p99_ms")]
        speed = ""
        if engine["name"] in data["speedup"]:
            low, high = data["speedup_quartiles"][engine["name"]]
            speed = f"{data['speedup'][engine['name']]:.3f} ({low:.3f} to {high:.3f})"
        memory = [f"{engine[key] / 1e6:.0f}" if key in engine else "–" for key in ("load_bytes", "serving_bytes")]
        rows.append([engine["name"], engine["version"], engine["precision"], *times, *memory, speed])
    times = ["min ms", "p50 ms", "mean ms", "p90 ms", "p99 ms"]
    heads = ["engine", "version", "precision", *times, "load MB", "serving MB", "speedup (quartiles)"]
    lines = [
        f"{result.model or result.artifact}: {result.threads} threads, {data['rounds']} rounds of every engine in turn",
        *table(heads, rows),
        "speedup = p50 of the other / ours, above 1 ours is faster; quartiles are over the rounds",
        "MB = peak memory of the engine's process while it loads and while it runs, beyond that of an empty one",
        *(f"{engine['name']} ran as {engine['way']}, its fastest way" for engine in data["engines"] if engine["way"]),
    ]
    return [*lines, *disturbance(result.others_cpu)]


def clients_lines(result: ClientsResult) -> list[str]:
    """The engines beside each other, for every number of clients."""
    rows = []
    for facts in (served.to_data() for served in result.served):
        times = [f"{facts[key]:.3f}" for key in ("p50_ms", "p90_ms", "p99_ms")]
        rows.append(
            [str(facts["clients"]), facts["name"], facts["precision"], f"{facts['requests_per_s']:.1f}", *times]
        )
    heads = ["clients", "engine", "precision", "requests/s", "p50 ms", "p90 ms", "p99 ms"]
    lines = [
        f"{result.model or result.artifact}: {result.threads} threads, {result.rounds} rounds of every engine in turn",
        *table(heads, rows),
    ]
    for name, speedups in result.to_data()["speedup"].items():
        told = ", ".join(f"{speedup:.3f} with {count}" for count, speedup in speedups.items())
        lines.append(f"speedup over {name}: {told} clients")
    lines.append("speedup = our requests per second / those of the other's better way, above 1 ours is faster")
    return [*lines, *disturbance(result.others_cpu)]


def task_lines(report: ModelReport) -> list[str]:
    """A model's tasks and the best that is known of each."""
    heads = ["key", "task", "×", "MFLOP", "KB", "bound µs", "best µs", "GFLOPS", "of bound", "trials", "source"]
    rows = [_task_row(task) for task in report.tasks]
    known = [task for task in report.tasks if task.best_s is not None]
    total_ms = 1e3 * sum(task.task.weight * (task.best_s or 0.0) for task in known)
    tunable = sum(task.tunable for task in report.tasks)
    return [
        f"{report.model} on {report.target.fingerprint}: {report.gflops:.0f} GFLOPS, {report.memory_gb_s:.0f} GB/s",
        *table(heads, rows),
        f"{len(report.tasks)} tasks, {tunable} tunable, {len(known)} with a record, {total_ms:.3f} ms together",
        *_branch_lines(report.branches),
    ]


def _branch_lines(branches: Sequence[BranchRow]) -> list[str]:
    """The phases in which something can run side by side (``--lanes``)."""
    phases: dict[int, list[BranchRow]] = {}
    for branch in branches:
        phases.setdefault(branch.phase, []).append(branch)
    wide = {phase: rows for phase, rows in phases.items() if len(rows) > 1}
    rows = [
        [str(phase), row.name, str(row.kernels), f"{1e6 * row.bound_s:.1f}"] for phase in wide for row in wide[phase]
    ]
    count = f"{len(phases)} phases, {len(wide)} of several branches"
    return [count, *table(["phase", "branch", "kernels", "bound µs"], rows)] if wide else [count]


def _task_row(report: TaskReport) -> list[str]:
    task = report.task
    numbers = ["–", "–", "–"]
    source = "nothing to tune" if not report.tunable else "no record"
    if report.best is not None and report.best_s is not None:
        numbers = [
            f"{1e6 * report.best_s:.1f}",
            f"{task.flop / report.best_s / 1e9:.0f}",
            f"{report.bound_s / report.best_s:.0%}",
        ]
        source = f"{report.best.host} {day(report.best.when)}"
    sizes = [str(task.weight), f"{task.flop / 1e6:.2f}", f"{task.bytes / 1e3:.0f}", f"{1e6 * report.bound_s:.1f}"]
    return [task.key, task.name, *sizes, *numbers, str(report.trials), source]


def kernel_lines(kernels: Sequence[Kernel]) -> list[str]:
    """A table of kernels, or their code, each under a line of comment."""
    if any(kernel.code for kernel in kernels):
        lines: list[str] = []
        for kernel in kernels:
            mark = "#" if kernel.code.startswith("#") else ";"
            lines += [
                f"{mark} {kernel.task.key} {kernel.task.name} {kernel.config.to_json()}",
                *kernel.code.rstrip().split("\n"),
            ]
        return lines
    rows, erring = [], any(kernel.error is not None for kernel in kernels)
    for kernel in kernels:
        known = kernel.latency_s is not None and kernel.latency_s > 0
        times = [f"{1e6 * (kernel.latency_s or 0):.1f}", f"{kernel.task.flop / (kernel.latency_s or 1) / 1e9:.0f}"]
        rows.append(
            [
                kernel.task.key,
                kernel.task.name,
                str(kernel.task.weight),
                *(times if known else ["–", "–"]),
                precision_of(kernel.task),
                *([] if not erring else ["–" if kernel.error is None else f"{kernel.error:.2g}"]),
                kernel.config.to_json(),
            ]
        )
    heads = ["key", "task", "×", "µs", "GFLOPS", "precision", *(["error"] if erring else []), "config"]
    return table(heads, rows)


def memory_line(memory: Mapping[str, int]) -> str:
    """The memory that a session needs, planned when the artifact was built."""
    weights, arena = memory["weights_bytes"] / 1e6, memory["arena_bytes"] / 1e6
    return f"weights {weights:.3g} MB; other tensors {arena:.3g} MB for each stream"


def lane_lines(report: LaneReport) -> list[str]:
    """Subgraphs on their lanes, and when they run."""
    rows = [
        [row.phase, row.name, row.lane, str(row.kernels), *(_span(*times) for times in (row.predicted, row.measured))]
        for row in report.rows
    ]
    predicted = "–" if report.predicted_s is None else f"{1e3 * report.predicted_s:.3f} ms"
    one = "" if report.one_lane_s is None else f"; one lane took {1e3 * report.one_lane_s:.3f} ms when this was chosen"
    heads = ["phase", "subgraph", "lane", "kernels", "predicted ms", "measured ms"]
    subgraphs = [row for row in report.rows if not row.is_copy]
    copies = len(report.rows) - len(subgraphs)
    count = f"{len(subgraphs)} subgraphs on {len({row.lane for row in subgraphs})} lanes"
    count += f", {copies} copies" if copies else ""
    measured = "not measured: its device is not here"
    if report.measured_s is not None:
        measured = f"measured {1e3 * report.measured_s:.3f} ms"
    return [*table(heads, rows), f"{count}: predicted {predicted}, {measured}{one}"]


def _span(begin_s: float | None, end_s: float | None) -> str:
    return "–" if begin_s is None or end_s is None else f"{1e3 * begin_s:.3f} to {1e3 * end_s:.3f}"
