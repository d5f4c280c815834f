"""``InferenceSession``, which mirrors onnxruntime's, over every kind of artifact."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from os import PathLike
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.artifact.manifest import read_manifest
from autotune.backends.executor import Span
from autotune.frame.noise import noise_of
from autotune.graph.lanes import Lane
from autotune.host.forks import renew_in_children
from autotune.runtime.adaptive.adapt import Adapt
from autotune.runtime.adaptive.adaptive_serving import AdaptiveServing
from autotune.runtime.io_binding import IOBinding
from autotune.runtime.onnxruntime_compat import (
    Described,
    NodeArg,
    OnnxRuntimeLike,
    Provider,
    check_run_options,
    thread_count,
    wanted_outputs,
    warn_of_providers,
)
from autotune.runtime.serve_options import ServeOptions, time_limit
from autotune.runtime.serving import Serving
from schedules.vocabulary.errors import UsageError

Array = NDArray[Any]

__all__ = ["InferenceSession", "NodeArg", "load"]


class InferenceSession(OnnxRuntimeLike):
    """A loaded artifact, to be used where an ``onnxruntime.InferenceSession`` was.

    An artifact is native code, which runs with all rights of this process: open only what you trust. Its hashes show
    damage, and not who made it.

    Safe to call from several threads: requests run side by side on as many streams as the artifact was tuned for, and
    wait for one first come, first served (docs/serving.md).

    Args:
        path: the artifact directory.
        sess_options: onnxruntime's ``SessionOptions``, of which the thread count is heeded, or that count itself.
        providers, provider_options: accepted; a warning is logged for any but the CPU's.
        threads: threads that a request runs on; None for what it was tuned for. In an artifact tuned for streams and
            for all cores (``balanced``), of the latter.
        serve: streams, the queue for them, how requests are joined into batches, and the seed of random numbers.
        adapt: ``path`` is an ONNX file. Requests of any size are answered from the first one, and a process of low
            priority tunes for the sizes that occur; ``True`` for the defaults of ``Adapt`` (docs/adapt.md).

    Raises:
        ArtifactError: if the artifact is damaged or not for this machine.
        InstallError: if the artifact has fallback partitions and ONNX Runtime is not installed.
        UsageError: for the bytes of a model instead of an artifact, a thread count below 1, a negative seed, or batches
            of a model that has no batch.
    """

    def __init__(
        self,
        path: str | Path,
        sess_options: object = None,
        providers: Sequence[Provider] | None = None,
        provider_options: object = None,
        *,
        threads: int | None = None,
        serve: ServeOptions | None = None,
        adapt: Adapt | bool = False,
    ) -> None:
        if isinstance(path, bytes | bytearray):
            raise UsageError("an artifact is a directory, not bytes; save the model and make one with 'tune run MODEL'")
        if not isinstance(path, str | PathLike) or "\0" in str(path):
            raise UsageError(f"{path!r} is no path; give that of an artifact's directory")
        if not isinstance(serve, ServeOptions | None):
            raise UsageError(f"serve is {serve!r}; give autotune.ServeOptions, such as ServeOptions(streams=2)")
        warn_of_providers(providers)
        self._path = Path(path)
        self._threads = thread_count(sess_options, threads)
        self._serve = serve or ServeOptions()
        self._serving: Serving | AdaptiveServing
        if adapt is False:
            self._serving = Serving(self._path, self._threads, self._serve)
        else:
            if adapt is not True and not isinstance(adapt, Adapt):
                raise UsageError(f"adapt is {adapt!r}; give True, or autotune.Adapt(cpu_share=0.25, until='3%')")
            if self._serve.seed is not None:
                raise UsageError("seed does not go with adapt: ONNX Runtime draws other numbers; leave one of them out")
            chosen = Adapt() if adapt is True else adapt
            self._serving = AdaptiveServing(self._path, self._threads, self._serve, chosen)
        self._reloading = threading.Lock()
        renew_in_children(self)

    def renew(self) -> None:
        """Begin again in the child of a fork (``autotune/host/forks.py``)."""
        self._reloading = threading.Lock()
        self._serving.renew()

    @property
    def _described(self) -> Described:
        return self._serving.first

    @property
    def streams(self) -> int:
        """Requests that may run side by side."""
        return self._serving.streams

    @property
    def threads(self) -> int:
        """Threads that kernels run on; those of a request that comes alone, where that makes a difference."""
        return self._serving.first.threads

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Array],
        run_options: object = None,
        *,
        timeout_s: float | None = None,
    ) -> list[Array]:
        """Outputs for ``input_feed``.

        Args:
            output_names: which outputs, in which order; None for all.
            input_feed: input name → array of the input's type, and of its shape or any that the artifact serves.
            run_options: onnxruntime's ``RunOptions``, of which ``terminate`` is heeded.
            timeout_s: longest wait for a stream in seconds; None waits as long as it takes.

        Returns:
            One array per output that was asked for, of the shape and dtype that ``get_outputs`` says.

        Raises:
            UsageError: for a missing, unknown or misshapen input or an unknown output. A size that needs a set of
                shapes of its own is named, with the option to add.
            BusyError: if other requests kept all streams for ``timeout_s``.
            RunError: if the run options ask to terminate, or the run fails; a fallback partition is named.
        """
        if run_options is not None:
            check_run_options(run_options)
        serving = self._serving  # of one request; ``reload`` may put another in its place meanwhile
        if timeout_s is not None:
            timeout_s = time_limit(timeout_s)
        if output_names is None:
            return serving.run(serving.check.arrays(input_feed), timeout_s)
        wanted = _numbers(output_names, serving.output_names)
        outputs = serving.run(serving.check.arrays(input_feed), timeout_s)
        return [outputs[number] for number in wanted]

    def io_binding(self) -> IOBinding:
        """Return a binding for ``run_with_iobinding``; with its caches in place if it was made with ``--generate``."""
        inputs = [spec.name for spec in self._serving.first.inputs]
        return IOBinding(inputs, self._serving.output_names, self._serving.generation)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: object = None, *, timeout_s: float | None = None
    ) -> None:
        """Run on what is bound; the binding has the outputs. A binding is for one caller at a time.

        Of a decoder made with ``--generate``, new positions are appended to the binding's caches.

        Args:
            run_options, timeout_s: as ``run``.

        Raises:
            UsageError: naming an input that is missing or misshapen, or if the caches are full.
            BusyError, RunError: as ``run``.
        """
        check_run_options(run_options)
        timeout_s = time_limit(timeout_s)
        serving = self._serving
        if isinstance(serving, AdaptiveServing) or serving.generation is None:
            outputs = serving.run(serving.check.arrays(iobinding.feed()), timeout_s)
            iobinding.keep(dict(zip(serving.output_names, outputs, strict=True)))
            return
        arrays = serving.check_new.arrays(iobinding.feed())
        caches = iobinding.caches_for(next(array.shape[0] for array in arrays if array.ndim > 1))
        outputs = serving.step(caches, arrays, timeout_s)
        iobinding.keep(dict(zip(serving.new_names, outputs, strict=True)))

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Array],
        *,
        timeout_s: float | None = None,
    ) -> Future[list[Array]]:
        """Work like ``run``, without waiting for it: a future of the outputs.

        The arrays must stay as they are until the future is done. Cancelling the future takes the request out of the
        queue; if it runs already, it ends before its next kernel, and ``result`` raises ``RunError``.

        Args:
            timeout_s: longest wait in seconds while ``max_queue`` requests wait already; None is no limit.

        Raises:
            UsageError, BusyError: as ``run``, at once. What else ``run`` raises, the future does.
        """
        serving = self._serving
        wanted = None if output_names is None else _numbers(output_names, serving.output_names)
        return serving.submit(serving.check.arrays(input_feed), time_limit(timeout_s), wanted)

    def reload(self, path: str | Path | None = None) -> bool:
        """Serve from now on with the artifact at ``path``; requests that have come before end with the old one.

        Both artifacts are in memory until the last of those has ended.

        Args:
            path: of an artifact with the same inputs and outputs; None for the session's own, which may be a newer one
                by now.

        Returns:
            Whether there was another artifact than the one that is open.

        Raises:
            ArtifactError, UsageError: as for a new session, or if it has other inputs or outputs. The session goes on
                with the artifact that it has.
        """
        if isinstance(self._serving, AdaptiveServing):
            raise UsageError("a session with adapt opens by itself what it tunes; leave reload out")
        with self._reloading:
            new = self._path if path is None else Path(path)
            if (new, str(read_manifest(new)["seal"])) == (self._path, self._serving.seal):
                return False
            serving = Serving(new, self._threads, self._serve)
            for name in ("inputs", "outputs"):
                before, after = (tuple(getattr(served.first, name)) for served in (self._serving, serving))
                if [vars(spec) for spec in before] != [vars(spec) for spec in after]:
                    raise UsageError(
                        f"{new} has the {name} {after}, and the session {before}; open a session of its own"
                    )
            self._serving, self._path = serving, new
            return True

    def sizes(self) -> list[dict[str, Any]]:
        """Return how often the model was called with which shapes, most often first; ``tune run --sizes`` reads them.

        Returns:
            For each, ``shapes`` (input → sizes) and ``count``; none of a model without open sizes. They are counted
            from the opening of the session or its last ``reload`` on.
        """
        check, inputs = self._serving.check, self._serving.first.inputs
        numbers = [number for number, spec in enumerate(inputs) if noise_of(spec.name) is None]
        return [
            {"shapes": {inputs[number].name: list(shapes[number]) for number in numbers}, "count": count}
            for shapes, count in sorted(check.seen.copy().items(), key=lambda item: -item[1])
        ]

    def status(self) -> dict[str, Any]:
        """Return the engine for every size, its gain, and what the tuner does; of a session with ``adapt``.

        Returns:
            ``model``; ``tuner``, what it does in words; ``pid`` of its process and ``artifact``, None while there is
            none; ``sizes``: for each range of sizes ``up_to`` (upper ends of the open sizes, in order), ``engine``
            (``onnxruntime``, ``kernels``, or ``both`` while they are compared), ``requests`` by engine, and ``gain``,
            the latency of ONNX Runtime over that of the kernels on live requests.

        Raises:
            UsageError: for a session without ``adapt``.
        """
        if not isinstance(self._serving, AdaptiveServing):
            raise UsageError("the session serves an artifact and tunes nothing; open the model with adapt=True")
        return self._serving.status()

    def close(self) -> None:
        """End the tuner of a session with ``adapt``. Requests are answered as before, by what is tuned by now."""
        if isinstance(self._serving, AdaptiveServing):
            self._serving.close()

    def profile(self, input_feed: Mapping[str, Array]) -> list[tuple[str, float]]:
        """Return where the time of one inference goes: (kernel's symbol, seconds) of every call, in order.

        Of several sets of shapes, the one of these very shapes is used. A fallback partition is one entry, named after
        its file.

        Raises:
            UsageError: as ``run``.
        """
        serving = self._serving
        arrays = serving.check.arrays(input_feed)
        return serving.on_stream(lambda executor, arrays: executor.profile(arrays), arrays)

    def timeline(self, input_feed: Mapping[str, Array]) -> list[Span]:
        """Return when every subgraph of one inference ran, and on which lane.

        Empty where the model is not cut into subgraphs.

        Raises:
            UsageError: as ``run``.
        """
        serving = self._serving
        arrays = serving.check.arrays(input_feed)
        return serving.on_stream(lambda executor, arrays: executor.timeline(arrays), arrays)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Lanes that run the subgraphs; of several sets of shapes, those of the first. Empty where there are none."""
        return self._serving.first.lanes

    def cancel(self) -> None:
        """End the calls in progress in other threads before their next kernel; they raise ``RunError``.

        ONNX Runtime runs to its end instead.
        """
        self._serving.cancel()


def _numbers(wanted: Sequence[str], names: Sequence[str]) -> list[int]:
    """The numbers of the outputs that are wanted."""
    return [names.index(name) for name in wanted_outputs(wanted, names)]


def load(path: str | Path, threads: int | None = None) -> InferenceSession:
    """Open the artifact at ``path``; see ``InferenceSession``."""
    return InferenceSession(path, threads=threads)
