"""``InferenceSession`` over an artifact with islands (``autotune/artifact/chain.py``)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from autotune.artifact.chain import Chain, Link, Value, read_chain
from autotune.backends.executor import Span
from autotune.graph.lanes import Lane
from autotune.importer.program import TensorSpec
from autotune.runtime import plain_session as runtime
from autotune.runtime.onnxruntime_compat import (
    ModelMeta,
    Provider,
    check_run_options,
    fitting,
    meta_of,
    refuse_unknown,
    thread_count,
    wanted_outputs,
    warn_of_providers,
)
from schedules.errors import InstallError, RunError, last_line

Array = NDArray[Any]

INSTALL = "pip install 'tune-compiler[bench]'"


class Runs(Protocol):
    """What runs one segment."""

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array]) -> Sequence[Any]:
        """Outputs, as ``InferenceSession.run`` has them."""
        ...


class ChainSession(runtime.InferenceSession):
    """A loaded artifact with islands; see ``autotune.runtime.plain_session.InferenceSession``.

    Raises:
        ArtifactError: if the artifact is damaged or not for this machine.
        InstallError: if ONNX Runtime is not installed.
    """

    def __init__(
        self,
        path: str | Path,
        sess_options: object = None,
        providers: Sequence[Provider] | None = None,
        provider_options: object = None,
        *,
        threads: int | None = None,
    ) -> None:
        warn_of_providers(providers)
        self._chain: Chain = read_chain(Path(path))
        tuned = {
            link.path: runtime.InferenceSession(link.path, sess_options, threads=threads) for link in self._chain.tuned
        }
        self._tuned = tuned
        self.threads = next(iter(tuned.values())).threads if tuned else thread_count(sess_options, threads) or 1
        self._runs: list[tuple[Link, Runs]] = [
            (link, _island(link.path, self.threads) if link.island else tuned[link.path]) for link in self._chain.links
        ]

    def get_inputs(self) -> list[runtime.NodeArg]:
        """The model's inputs, in order."""
        return [_argument(value) for value in self._chain.inputs]

    def get_outputs(self) -> list[runtime.NodeArg]:
        """The model's outputs, in order; sizes that depend on the data are None."""
        return [_argument(value) for value in self._chain.outputs]

    def get_modelmeta(self) -> ModelMeta:
        """Where the artifact comes from."""
        return meta_of(self._chain.provenance)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array], run_options: object = None
    ) -> list[Array]:
        """Outputs for ``input_feed``; see ``runtime.InferenceSession.run``.

        Raises:
            UsageError: for a missing, unknown or misshapen input or an unknown output.
            RunError: if the run options ask to terminate, or an island fails; it names the island.
        """
        check_run_options(run_options)
        wanted = wanted_outputs(output_names, [value["name"] for value in self._chain.outputs])
        values = self._checked(input_feed)
        for link, session in self._runs:
            values.update(zip(link.outputs, _made(link, session, values), strict=True))
        return [values[name] for name in wanted]

    def profile(self, input_feed: Mapping[str, Array]) -> list[tuple[str, float]]:
        """As ``runtime.InferenceSession.profile``; an island is one entry, named after its file."""
        values = self._checked(input_feed)
        spent: list[tuple[str, float]] = []
        for link, session in self._runs:
            began = time.perf_counter()
            made = _made(link, session, values)
            if isinstance(session, runtime.InferenceSession):
                spent += session.profile({name: values[name] for name in link.inputs})
            else:
                spent.append((link.path.stem, time.perf_counter() - began))
            values.update(zip(link.outputs, made, strict=True))
        return spent

    def timeline(self, input_feed: Mapping[str, Array]) -> list[Span]:
        """Empty: segments run one after the other."""
        return []

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Empty: see ``timeline``."""
        return ()

    def cancel(self) -> None:
        """End the calls that are on in other threads at the next tuned kernel."""
        for session in self._tuned.values():
            session.cancel()

    def _checked(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        refuse_unknown(feed, [value["name"] for value in self._chain.inputs])
        return {
            value["name"]: fitting(feed, value["name"], tuple(value["shape"]), value["dtype"])
            for value in self._chain.inputs
        }


def _made(link: Link, session: Runs, values: Mapping[str, Array]) -> Sequence[Array]:
    """What one segment makes."""
    feed = {name: values[name] for name in link.inputs}
    if isinstance(session, runtime.InferenceSession):
        return session.run(list(link.outputs), feed)
    try:
        made: Sequence[Array] = session.run(list(link.outputs), feed)
    except Exception as error:  # ONNX Runtime has no class of its own for what can go wrong in a kernel
        told = last_line(error)[:300]
        raise RunError(f"island {link.path.name} ({', '.join(link.operators)}) failed: {told}") from error
    return made


def _argument(value: Value) -> runtime.NodeArg:
    argument = runtime.NodeArg(TensorSpec(value["name"], tuple(size or 0 for size in value["shape"]), value["dtype"]))
    argument.shape = list(value["shape"])
    return argument


def _island(path: Path, threads: int) -> Runs:
    """ONNX Runtime over an island, on as many threads as the kernels."""
    runner: Runs = onnxruntime_over(path.read_bytes(), threads)
    return runner


def onnxruntime_over(model: bytes, threads: int) -> Any:
    """An ONNX Runtime session.

    Raises:
        InstallError: if it is not installed.
    """
    try:
        import onnxruntime  # optional: an extra
    except ImportError as error:
        raise InstallError(
            f"segments with operators that TVM cannot express run on ONNX Runtime, which is not installed; {INSTALL}"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # kernels between need the cores
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
