"""Placing on a CPU and a device, shown on the simulated device: ``python -m research.duet WHAT``.

measured    random graphs: predicted against measured seconds, copies counted, and how much of their time is hidden
streaming   a model in half of the memory that its weights take: right, and as slow as predicted

The device computes on the CPU at made-up speeds, so nothing here says anything of a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from autotune.artifact.directory import read_artifact
from autotune.backends.cpu.linking import link_kernels
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.backends.device_interface import Room
from autotune.builder.device_profiles import hand_over_s
from autotune.cli.reply import table
from autotune.graph.device_problem import Costs, Ends, problem_of, spec_bytes
from autotune.graph.exact import exact
from autotune.graph.flat import Flat
from autotune.graph.lanes import HOST, cpu_lane
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Link, Placement, Problem
from autotune.graph.simulation import simulate, simulate_copies
from autotune.graph.steps import Piece
from autotune.graph.streaming import choose_resident, streaming_s
from autotune.interface import TensorSpec
from autotune.options import Options
from autotune.runtime.session import InferenceSession
from autotune.tuning.tune import tune
from tests.autotune_tests.graph_tests.dags import random_edges, random_flat
from tests.models import transformer
from tests.simulated.placed import Mixing, Placed, device_lane, sequential
from tests.simulated.software_device import SoftwareDevice, Speeds

FAKES = Path(__file__).parents[1] / "tests" / "autotune_tests" / "backends_tests" / "cpu_tests" / "fake_kernels.cc"
WAY_IN, WAY_OUT = Link(4e-4, 5e4), Link(6e-4, 5e4)
"""Tensors of these programs are small, so links are slow: 0.4 to 7 ms a copy."""

LANES = (cpu_lane(0, 1), device_lane(1))
RUNS, WARM_RUNS = 5, 1
CLOSE, REPEATS = 0.1, 5
"""Graphs that are off by more than ``CLOSE`` are measured so often again, after all others: the median says if it was
the machine."""

CALIBRATED = 10
"""Graphs after which sleeping and handing over are measured anew: the speed of a virtual machine drifts."""


def stolen_s() -> float:
    """Seconds that the hypervisor kept this machine's CPUs for itself."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def fake_library(folder: Path) -> NativeLibrary:
    """The tests' kernels, ``slow`` among them, which takes a millisecond."""
    from tvm.support import cc
    from tvm_ffi import libinfo

    command = [cc.get_cc(), "-O2", "-std=c++17", "-fPIC", f"-I{libinfo.find_include_path()}", "-c", str(FAKES)]
    subprocess.run([*command, "-o", str(folder / "kernels.o")], check=True)
    link_kernels({"fakes": folder / "kernels.o"}, folder / "fakes.so")
    return NativeLibrary(folder / "fakes.so")


def sleeping(rng: Any, most: int) -> tuple[Flat, list[tuple[int, ...]]]:
    """A program of ``slow`` calls over a random graph of subgraphs, each a chain of three to sixteen calls."""
    coarse = random_edges(rng, most)
    edges: list[list[int]] = []
    last: list[int] = []
    parts: list[tuple[int, ...]] = []
    for reads in coarse:
        calls = [len(edges)]
        edges.append([last[source] for source in reads])
        for _ in range(int(rng.integers(2, 16))):
            edges.append([len(edges) - 1])
            calls.append(len(edges) - 1)
        last.append(calls[-1])
        parts.append(tuple(calls))
    return random_flat(rng, edges, "slow"), parts


def ends_of(flat: Flat, parts: list[tuple[int, ...]]) -> tuple[list[Ends], Ends]:
    """What every subgraph, and the whole, reads and writes."""
    owner = {call: number for number, calls in enumerate(parts) for call in calls}

    def spec(call: int) -> TensorSpec:
        return TensorSpec(f"v{call}", flat.calls[call].shape, "float64")

    x = TensorSpec("x", (8,), "float64")
    reads: list[dict[str, TensorSpec]] = [{} for _ in parts]
    written = {use.source.index for use in flat.outputs}
    for number, calls in enumerate(parts):
        for use in (use for call in calls for use in flat.calls[call].arguments):
            if use.source.place == "input":
                reads[number]["x"] = x
            elif owner[use.source.index] != number:
                reads[number][f"v{use.source.index}"] = spec(use.source.index)
                written.add(use.source.index)
    outputs = [tuple(spec(call) for call in calls if call in written) for calls in parts]
    ends = [Ends(str(n), tuple(reads[n].values()), outputs[n]) for n in range(len(parts))]
    return ends, Ends("model", (x,), tuple(spec(use.source.index) for use in flat.outputs))


def nap_s(library: NativeLibrary) -> float:
    """Seconds of a ``slow`` call here: a millisecond, and what the driver takes for a call."""
    flat = random_flat(np.random.default_rng(0), [[], *([n] for n in range(49))], "slow")
    placed = Placed(library, flat, [Piece("0", tuple(range(50)), 0)], LANES[:1])
    runs = [placed.machine.timeline([np.ones(8)])[0].seconds / 50 for _ in range(5)]
    placed.machine.close()
    return statistics.median(runs)


def driver_s(library: NativeLibrary) -> float:
    """Seconds that handing over to the simulated device takes here, as ``tune run`` measures it."""
    device = SoftwareDevice("sim:0", Room(64), Speeds(WAY_IN, WAY_OUT))
    return hand_over_s(device, LANES, library, {(HOST, "sim:0"): WAY_IN, ("sim:0", HOST): WAY_OUT})


def overlapped(copies: list[tuple[float, float]], busy: list[tuple[float, float]]) -> float:
    """Seconds of ``copies`` during which something of ``busy`` runs."""
    moments = sorted({moment for span in (*copies, *busy) for moment in span})
    total = 0.0
    for begin, end in itertools.pairwise(moments):
        if any(b <= begin and end <= e for b, e in busy):
            total += (end - begin) * sum(b <= begin and end <= e for b, e in copies)
    return total


@dataclass
class Graph:
    """A random graph of subgraphs that sleep on the CPU and take a made-up time on the simulated device.

    Attributes:
        parts: calls of every subgraph.
        on_device: name of a subgraph → seconds that it takes there.
        problem: what placing should know; its first subgraph holds the inputs and its last one the outputs.
        values: that its tensors are.
    """

    library: NativeLibrary
    flat: Flat
    parts: list[tuple[int, ...]]
    on_device: dict[str, float]
    problem: Problem
    values: list[str]
    x: Any

    @property
    def subgraphs(self) -> tuple[Subgraph, ...]:
        """Of the problem, named as the pieces of ``machine``."""
        return tuple(Subgraph(str(s - 1), ()) for s in range(self.problem.count))

    def machine(self, placement: Placement) -> Placed:
        """What runs it as placed."""
        lanes = placement.lanes
        pieces = [Piece(str(s - 1), self.parts[s - 1], lanes[s]) for s in placement.order if 0 < s <= len(self.parts)]
        asked = [(self.values[copy.tensor], copy.link) for copy in placement.copies]
        placed = Placed(self.library, self.flat, pieces, LANES, asked, Speeds(WAY_IN, WAY_OUT))
        for device in placed.devices.values():
            assert isinstance(device, Mixing)
            device.seconds = self.on_device
        return placed


def random_graph(library: NativeLibrary, number: int, nap: float, hand_over: float) -> Graph:
    """Random graph ``number``.

    Args:
        nap, hand_over: seconds of a call on the CPU, and of handing over, on this machine now.
    """
    rng = np.random.default_rng([0, number])
    flat, parts = sleeping(rng, 12)
    ends, whole = ends_of(flat, parts)
    seconds = {str(n): len(calls) * nap * float(rng.uniform(0.3, 1.5)) for n, calls in enumerate(parts)}
    on_device = [seconds[str(n)] + hand_over for n in range(len(parts))]
    costs = [Costs(len(c) * nap, s, len(c) * nap, s) for c, s in zip(parts, on_device, strict=True)]
    there, back = (replace(way, latency_s=way.latency_s + hand_over) for way in (WAY_IN, WAY_OUT))
    problem, values = problem_of(ends, whole, costs, LANES, {(HOST, "sim:0"): there, ("sim:0", HOST): back})
    return Graph(library, flat, parts, seconds, problem, values, rng.uniform(0.0, 10.0, 8))


def run_graph(library: NativeLibrary, number: int, nap: float, hand_over: float) -> dict[str, float] | None:
    """Random graph ``number``, placed and run; None where nothing was placed on the device."""
    graph = random_graph(library, number, nap, hand_over)
    problem, x = graph.problem, graph.x
    best = exact(problem).placement
    if not best.copies:
        return None
    spans = simulate(problem, best)
    placed = graph.machine(best)
    device = next(iter(placed.devices.values()))
    expected = sequential(graph.flat, x)

    def seconds(_number: int) -> float:
        device.operations.clear()
        began = time.perf_counter()
        outputs = placed.machine.run([x])
        took = time.perf_counter() - began
        assert all(np.array_equal(a, b) for a, b in zip(outputs, expected, strict=True))
        return took

    walls = [seconds(number) for number in range(WARM_RUNS + RUNS)][WARM_RUNS:]
    copied = [o for o in device.operations if o.way]
    counted = {(o.way, o.offset) for o in copied}
    assert len(copied) == len(placed.merged.transfers) == len({(t.value, t.way) for t in placed.merged.transfers})
    timeline = placed.machine.timeline([x])
    placed.machine.close()
    lanes = placed.steps.lanes
    copies = [(s.began_s, s.ended_s) for s in timeline if lanes[s.group.lane].copies]
    busy = [(s.began_s, s.ended_s) for s in timeline if not lanes[s.group.lane].copies]
    planned = [span for s, span in enumerate(spans) if span[1] > span[0]]
    allowed = overlapped([(c.start, c.end) for c in simulate_copies(problem, best)], planned)
    return {
        "off": statistics.median(walls) / max(end for _, end in spans) - 1.0,
        "copies": len(counted),
        "hidden": min(overlapped(copies, busy), allowed),
        "allowed": allowed,
    }


def passed(library: NativeLibrary, numbers: Iterable[int], count: int) -> dict[int, dict[str, float]]:
    """The first ``count`` of the graphs ``numbers`` of which something is on the device, measured."""
    measurements: dict[int, dict[str, float]] = {}
    nap = hand_over = 0.0
    began, stolen = time.perf_counter(), stolen_s()
    for tried, number in enumerate(numbers):
        if tried % CALIBRATED == 0:
            nap, hand_over = nap_s(library), driver_s(library)
        one = run_graph(library, number, nap, hand_over)
        if one is not None:
            measurements[number] = one
        if len(measurements) == count:
            break
    took, stolen = time.perf_counter() - began, stolen_s() - stolen
    off = np.array([one["off"] for one in measurements.values()])
    print(
        f"{len(measurements)} graphs: median {np.median(off):+.1%}, {off.min():+.1%} to {off.max():+.1%}, "
        f"{np.sum(np.abs(off) <= CLOSE)} within {CLOSE:.0%}; a sleep of 1 ms takes {1e3 * nap:.3f} ms, handing over "
        f"{1e6 * hand_over:.0f} µs; of {took:.0f} s, {stolen / took:.0%} of a CPU were stolen",
        flush=True,
    )
    return measurements


def measured(count: int) -> None:
    """Predicted against measured on ``count`` graphs, medians of ``RUNS`` runs each."""
    with tempfile.TemporaryDirectory() as folder:
        library = fake_library(Path(folder))
        first = passed(library, itertools.count(), count)
        far = [number for number, one in first.items() if abs(one["off"]) > CLOSE]
        again = [passed(library, far, len(far)) for _ in range(REPEATS if far else 0)]
    off = {number: one["off"] for number, one in first.items()}
    off |= {number: statistics.median(repeat[number]["off"] for repeat in again) for number in far}
    near = sum(abs(value) <= CLOSE for value in off.values())
    print(f"with medians of {REPEATS} for the {len(far)} that were off: {near} within {CLOSE:.0%}")
    print("still off:", ", ".join(f"graph {n} {v:+.1%}" for n, v in off.items() if abs(v) > CLOSE) or "none")
    print(f"{sum(one['copies'] for one in first.values()):.0f} copies, of no value twice")
    allowed, hidden = (sum(one[name] for one in first.values()) for name in ("allowed", "hidden"))
    print(f"of {1e3 * allowed:.0f} ms of copies that the placements lay beside work, {hidden / allowed:.1%} were")


def streaming(layers: int = 24, width: int = 512) -> None:
    """A perceptron with half of its weights' bytes of memory, behind a fast link and a slow one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(partial(transformer.mlp, layers=layers, width=width)(0), folder / "mlp.onnx")
        options = Options(out=folder / "mlp.tuned", log=folder / "t.db", trials=0, budget_s=2, threads=1, peer=False)
        tune(folder / "mlp.onnx", options)
        artifact = read_artifact(folder / "mlp.tuned")
        (spec,), (result,) = artifact.inputs, artifact.outputs
        x = np.random.default_rng(0).standard_normal(spec.shape).astype(np.float32)
        (expected,) = InferenceSession(artifact.path).run(None, {spec.name: x})
        first = -(-spec_bytes(spec) // 64) * 64
        whole = Room.of(first + spec_bytes(result), 0, [artifact])
        rows = []
        for kernel_ms, copy_ms in ((4.0, 2.0), (4.0, 4.0), (2.0, 4.0)):
            link = Link(1e-4, 4 * width * width / (1e-3 * copy_ms))
            speeds = Speeds(link, Link(), kernel_s=lambda _step, ms=kernel_ms: 1e-3 * ms)  # type: ignore[misc]
            times = []
            for share in (1.0, 0.5):
                limit = whole.arena_bytes + whole.inner_bytes + int(share * whole.weight_bytes)
                device = SoftwareDevice("sim:0", replace(whole, limit_bytes=limit), speeds)
                run = device.load(artifact, [0], [first])
                device.upload(x, 0)
                runs = []
                for _ in range(9):
                    began = time.perf_counter()
                    run()
                    runs.append(time.perf_counter() - began)
                y = np.zeros(result.shape, np.float32)
                device.download(first, y)
                assert np.array_equal(y, expected)
                times.append(statistics.median(runs))
                device.close()
            steps = replace(artifact.steps, weights=artifact.weights)
            chosen = choose_resident(steps, int(0.5 * whole.weight_bytes))
            assert chosen is not None
            predicted = streaming_s(steps, chosen, [1e-3 * kernel_ms] * len(steps.calls), link)
            slower, foreseen = times[1] / times[0], predicted / (1e-3 * kernel_ms * len(steps.calls))
            ms = [f"{1e3 * value:.1f}" for value in (*times, predicted)]
            rows.append(
                [
                    f"{kernel_ms:g}",
                    f"{copy_ms:g}",
                    *ms,
                    f"{slower:.3f}",
                    f"{foreseen:.3f}",
                    f"{slower / foreseen - 1:+.1%}",
                ]
            )
        heads = ["kernel ms", "copy ms", "all ms", "half ms", "predicted ms", "slow-down", "predicted", "off by"]
        print(f"{len(steps.calls)} kernels, {whole.weight_bytes >> 20} MiB of weights; outputs equal")
        print("\n".join(table(heads, rows)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    works: dict[str, Callable[[int], None]] = {
        "measured": measured,
        "streaming": lambda _count: streaming(),
    }
    parser.add_argument("what", choices=works)
    parser.add_argument("--count", type=int, default=200, help="graphs")
    arguments = parser.parse_args()
    works[arguments.what](arguments.count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
