"""What an artifact is tuned to be good at: one request at a time, many side by side, or both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotune.artifact.manifest import AUTO, STREAMS, annotate, read_manifest
from autotune.host.machine import host_target
from autotune.options import BALANCED, LATENCY, THROUGHPUT, Options


def stream_options(options: Options) -> Options:
    """``options`` with the threads of one stream, where kernels are for streams alone."""
    return replace(options, threads=_of_a_stream(options)) if options.objective == THROUGHPUT else options


def thread_counts(options: Options) -> tuple[int | None, ...]:
    """The numbers of threads that kernels are tuned for, all cores first; None for what the target has."""
    if options.objective != BALANCED:
        return (options.threads,)
    return tuple(dict.fromkeys((host_target(options.threads).threads, _of_a_stream(options))))


def record_streams(artifact: Path, options: Options) -> None:
    """Write into the artifact how many streams a session opens.

    Raises:
        ArtifactError: if it cannot be written.
    """
    streams = 1 if options.objective == LATENCY else options.streams or AUTO
    if read_manifest(artifact)["provenance"].get(STREAMS, 1) != streams:
        annotate(artifact, {STREAMS: streams})


def _of_a_stream(options: Options) -> int:
    """Threads of one stream."""
    return max(1, host_target(options.threads).threads // options.streams) if options.streams else 1
