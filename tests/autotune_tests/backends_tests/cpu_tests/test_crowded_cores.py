"""Lanes, sessions and streams with 4 to 64 threads on the CPUs that there are: outputs are right and no run hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import autotune
from autotune.backends.cpu.native_executor import NativeExecutor
from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.steps import arrange
from autotune.host import cpu_claims, machine
from autotune.host.machine import host_target, read_host, thread_cpus
from autotune.runtime.serve_options import ServeOptions
from tests.autotune_tests.backends_tests.cpu_tests.test_native_executor import equal, random_pieces, tensor
from tests.autotune_tests.graph_tests.dags import random_edges, random_flat
from tests.models.catalog import cached
from tests.simulated.placed import sequential

PATIENCE_S = 60.0
MANY = (pytest.param(4, marks=pytest.mark.slow), 16, pytest.param(64, marks=pytest.mark.slow))
slow = pytest.mark.slow

LANES: dict[str, tuple[Lane, ...]] = {
    "one of 64": (cpu_lane(0, 64),),
    "16 of 4": tuple(cpu_lane(4 * lane, 4) for lane in range(16)),
    "halves, and both": (cpu_lane(0, 32), cpu_lane(32, 32), cpu_lane(0, 64)),
    "of all sizes": (cpu_lane(0, 1), cpu_lane(1, 3), cpu_lane(4, 12), cpu_lane(16, 16)),
}


def within(work: Callable[[], Any]) -> Any:
    """The result of ``work``, unless it hangs."""
    with ThreadPoolExecutor(1) as own:
        return own.submit(work).result(PATIENCE_S)


@pytest.mark.parametrize("name", LANES)
@pytest.mark.parametrize("graphs", [3, pytest.param(60, marks=slow)])
def test_lanes_of_more_cores_than_there_are_run_as_in_sequence(library: Any, name: str, graphs: int) -> None:
    rng, lanes = np.random.default_rng(len(name)), LANES[name]
    cpus = thread_cpus(2)
    where = [cpus[core % len(cpus)] for core in range(1 + max(lane.cores[-1] for lane in lanes))]
    sizes = {lane.threads for lane in lanes}
    for _ in range(graphs):
        edges = random_edges(rng)
        flat = random_flat(rng, edges)
        steps = arrange(dict.fromkeys(sizes, flat), random_pieces(rng, edges, lanes), lanes, None)
        placed = NativeExecutor(dict.fromkeys(sizes, library), steps, (), where)
        for _ in range(2):
            x = tensor(rng)
            assert equal(within(lambda placed=placed, x=x: placed.run([x])), sequential(flat, x))
        placed.close()


Built = Callable[[str, int], Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Artifacts of first guesses for any number of threads, each made once."""
    folder, by_case = tmp_path_factory.mktemp("many"), {}

    def build(name: str, threads: int) -> Path:
        if (name, threads) not in by_case:
            target, out = replace(host_target(), threads=threads), folder / f"{name}-{threads}.tuned"
            options = autotune.Options(target=target, device=False, out=out, log=folder / "tuning.db")
            autotune.tune(cached(name), options)
            by_case[name, threads] = out
        return by_case[name, threads]

    return build


def case(name: str) -> tuple[dict[str, np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
    """Inputs of a model and what ONNX Runtime makes of them."""
    reference = onnxruntime.InferenceSession(str(cached(name)), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    feed = {arg.name: rng.uniform(-1, 1, arg.shape).astype(np.float32) for arg in reference.get_inputs()}
    return feed, reference.run(None, feed)


def is_right(outputs: list[Any], expected: list[Any]) -> bool:
    return all(np.allclose(mine, theirs, rtol=1e-3, atol=1e-4) for mine, theirs in zip(outputs, expected, strict=True))


MODELS = [
    "tiny_cnn",
    *(
        pytest.param(name, marks=slow)
        for name in ("tiny_grouped", "tiny_encoder", "tiny_lstm", "tiny_qdq", "tiny_unet")
    ),
]


@pytest.mark.parametrize("threads", MANY)
@pytest.mark.parametrize("name", MODELS)
def test_a_session_with_more_threads_than_cpus_is_right(built: Built, name: str, threads: int) -> None:
    session = autotune.InferenceSession(built(name, threads))
    feed, expected = case(name)
    for _ in range(3):
        assert is_right(within(lambda: session.run(None, feed)), expected)
    with ThreadPoolExecutor(4) as callers:
        answers = [callers.submit(session.run, None, feed) for _ in range(8)]
        assert all(is_right(answer.result(PATIENCE_S), expected) for answer in answers)


def test_streams_of_many_threads_on_two_nodes(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each CPU stands for a node of its own; streams are dealt out to both and answer side by side."""
    here = read_host()
    ours = here.allowed[:2]
    host = replace(here, allowed=ours, cores=ours, nodes=tuple(frozenset({cpu}) for cpu in ours))
    for module in (cpu_claims, machine):
        monkeypatch.setattr(module, "read_host", lambda: host)
    session = autotune.InferenceSession(built("tiny_cnn", 16), threads=8, serve=ServeOptions(streams=3))
    feed, expected = case("tiny_cnn")
    with ThreadPoolExecutor(6) as callers:
        answers = [callers.submit(session.run, None, feed) for _ in range(24)]
        assert all(is_right(answer.result(PATIENCE_S), expected) for answer in answers)


ON_ONE_CPU = """
import os, sys
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
import numpy as np
import autotune
session = autotune.InferenceSession(sys.argv[1])
feed = {each.name: np.ones(each.shape, np.float32) for each in session.get_inputs()}
for _ in range(3):
    (found,) = session.run(None, feed)
assert os.sched_getaffinity(0) == {max(os.sched_getaffinity(0))}
np.save(sys.argv[2], found)
"""


def test_a_mask_with_holes_leaves_sessions_right(built: Built, tmp_path: Path) -> None:
    """Only the last CPU is allowed: the numbers of those that threads are pinned to do not begin with 0."""
    artifact, file = built("tiny_cnn", 16), tmp_path / "found.npy"
    subprocess.run([sys.executable, "-c", ON_ONE_CPU, str(artifact), str(file)], check=True, timeout=PATIENCE_S)
    reference = onnxruntime.InferenceSession(str(cached("tiny_cnn")), providers=["CPUExecutionProvider"])
    feed = {arg.name: np.ones(arg.shape, np.float32) for arg in reference.get_inputs()}
    assert is_right([np.load(file)], reference.run(None, feed))
    assert len(os.sched_getaffinity(0)) == len(read_host().allowed)
