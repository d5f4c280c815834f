"""ONNX Runtime as a peer: with its defaults, or with the fastest of a few settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from autotune.validation.engine_precision import onnxruntime_precision
from autotune.validation.peers.peer import Engine, Loader, Peer, Work

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "onnxruntime": {},
    "onnxruntime-no-spinning": {"session.intra_op.allow_spinning": "0"},
    "onnxruntime-dynamic-blocks": {"session.dynamic_block_base": "4"},
}
"""Way → entries of ONNX Runtime's session options. Its guide to threads recommends trying the last."""

NO_ARENA = "onnxruntime-no-arena"
"""The way without an arena: every tensor is allocated by the system."""


def _loader(way: str) -> Loader:
    def load(work: Work) -> Engine:
        import onnxruntime

        session = _session(work, work.threads, way)
        return Engine(onnxruntime.__version__, _precision(work), lambda: session.run(None, work.feed))

    return load


def _per_client(work: Work) -> Engine:
    """Load a session for every client, each on its share of the threads."""
    import onnxruntime

    @cache  # for every round: of a large model they take seconds to load
    def clients(count: int) -> list[Callable[[], object]]:
        sessions = [_session(work, max(1, work.threads // count)) for _ in range(count)]
        return [partial(session.run, None, work.feed) for session in sessions]

    return Engine(onnxruntime.__version__, _precision(work), clients(1)[0], clients)


def _precision(work: Work) -> str:
    return onnxruntime_precision(Path(work.model), _options(work.threads))


def _session(work: Work, threads: int, way: str = "onnxruntime") -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(work.model, _options(threads, way), providers=["CPUExecutionProvider"])


def _options(threads: int, way: str = "onnxruntime") -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = way != NO_ARENA
    for key, value in SETTINGS.get(way, {}).items():
        options.add_session_config_entry(key, value)
    return options


ONNXRUNTIME = Peer(
    "onnxruntime",
    {"onnxruntime": _loader("onnxruntime")},
    {"onnxruntime": _loader("onnxruntime"), "onnxruntime-per-client": _per_client},
)

ONNXRUNTIME_BEST = Peer("onnxruntime", {way: _loader(way) for way in (*SETTINGS, NO_ARENA)})
