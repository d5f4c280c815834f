"""Running an artifact: ``InferenceSession``, which mirrors onnxruntime's."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray

from autotune.artifact.directory import Artifact, read_artifact
from autotune.backends.cpu.libraries import set_threads
from autotune.backends.executor import KernelExecutor, Span
from autotune.backends.registry import backend_of
from autotune.graph.lanes import Lane
from autotune.host.dtypes import as_words, numpy_type, word
from autotune.host.pages import paged
from autotune.importer.program import TensorSpec
from autotune.runtime.onnxruntime_compat import (
    ModelMeta,
    OnnxRuntimeLike,
    Provider,
    check_run_options,
    fitting,
    meta_of,
    refuse_unknown,
    thread_count,
    wanted_outputs,
    warn_of_providers,
)
from schedules.errors import UsageError

ALIGNMENT = 64  # bytes, assumed by compiled kernels


class NodeArg:
    """Name, shape and type of an input or output, as onnxruntime's ``NodeArg``."""

    def __init__(self, spec: TensorSpec) -> None:
        self.name = spec.name
        self.shape: list[int | str | None] = list(spec.shape)
        self.dtype = spec.dtype
        self.type = f"tensor({_ONNX_NAMES.get(spec.dtype, spec.dtype)})"


_ONNX_NAMES = {"float32": "float", "float64": "double"}


class InferenceSession(OnnxRuntimeLike):
    """A loaded artifact, to be used where an ``onnxruntime.InferenceSession`` was.

    Safe to call from several threads: one machine serves one call at a time.

    Args:
        path: the artifact directory, or what ``read_artifact`` made of it.
        sess_options: onnxruntime's ``SessionOptions``, of which the thread count is heeded, or that count itself.
        providers, provider_options: accepted; a warning is logged for any but the CPU's.
        threads: threads to run on; None for what it was tuned for.

    Raises:
        ArtifactError: if the artifact is damaged or not for this machine.
        UsageError: for the bytes of a model instead of an artifact, or a thread count below 1.
    """

    def __init__(
        self,
        path: str | Path | Artifact,
        sess_options: object = None,
        providers: Sequence[Provider] | None = None,
        provider_options: object = None,
        *,
        threads: int | None = None,
    ) -> None:
        if isinstance(path, bytes | bytearray):
            raise UsageError("an artifact is a directory, not bytes; save the model and make one with 'tune run MODEL'")
        warn_of_providers(providers)
        self._artifact: Artifact = path if isinstance(path, Artifact) else read_artifact(Path(path))
        self.threads = thread_count(sess_options, threads) or self._artifact.target.threads
        self._machine: KernelExecutor = backend_of(self._artifact.target).executor(self._artifact, self.threads)
        self._names = [spec.name for spec in self._artifact.outputs]
        # Told once: a model of small layers runs in less time than it takes to look these up.
        self._inputs = [(spec, numpy_type(spec.dtype)) for spec in self._artifact.inputs]
        self._outputs = [(spec, numpy_type(spec.dtype)) for spec in self._artifact.outputs]
        # Kernels make all of them, in the type that users see.
        self._as_made = all(0 not in spec.shape and word(dtype) == dtype for spec, dtype in self._outputs)
        self._by_thread = self._machine.pool_per_thread
        # Tensors without elements are known without asking, and kernels have no use for them.
        self._staging = [_Staging(spec) for spec in self._artifact.inputs if math.prod(spec.shape)]
        self._lock = threading.Lock()
        self._thread = threading.local()  # not a set of ids: a new thread may get the id of one that ended

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in order."""
        return [NodeArg(spec) for spec in self._artifact.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs, in order."""
        return [NodeArg(spec) for spec in self._artifact.outputs]

    def get_modelmeta(self) -> ModelMeta:
        """Where the artifact comes from."""
        return meta_of(self._artifact.provenance)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, NDArray[Any]],
        run_options: object = None,
    ) -> list[NDArray[Any]]:
        """Outputs for ``input_feed``.

        Args:
            output_names: which outputs, in which order; None for all.
            input_feed: input name → array of the input's shape and dtype.
            run_options: onnxruntime's ``RunOptions``, of which ``terminate`` is heeded.

        Returns:
            One array per output that was asked for, of the shape and dtype that ``get_outputs`` says.

        Raises:
            UsageError: for a missing, unknown or misshapen input or an unknown output.
            RunError: if the run options ask to terminate, or the run fails.
        """
        check_run_options(run_options)
        wanted = wanted_outputs(output_names, self._names)
        arrays = self._arrays(input_feed)
        with self._lock:
            results = self._machine.run(self._tensors(arrays))
        if self._as_made and not output_names:
            return results
        made = iter(results)
        outputs = {spec.name: _output(spec, dtype, made) for spec, dtype in self._outputs}
        return [outputs[name] for name in wanted]

    def profile(self, input_feed: Mapping[str, NDArray[Any]]) -> list[tuple[str, float]]:
        """Where the time of one inference goes: (kernel's symbol, seconds) of every call, in order.

        Empty where the virtual machine runs the model, which does not tell.

        Raises:
            UsageError: as ``run``.
        """
        with self._ready(input_feed) as arguments:
            return self._machine.profile(arguments)

    def timeline(self, input_feed: Mapping[str, NDArray[Any]]) -> list[Span]:
        """When every subgraph of one inference ran, and on which lane; empty where the virtual machine runs the model.

        Raises:
            UsageError: as ``run``.
        """
        with self._ready(input_feed) as arguments:
            return self._machine.timeline(arguments)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """What runs the subgraphs; empty where the virtual machine runs the model."""
        return self._machine.lanes

    def cancel(self) -> None:
        """End the call that is on in another thread before its next kernel; it raises ``RunError``.

        The virtual machine runs to its end instead.
        """
        self._machine.cancel()

    @contextmanager
    def _ready(self, feed: Mapping[str, NDArray[Any]]) -> Iterator[list[tvm.runtime.Tensor]]:
        """The checked inputs as tensors; the machine is the caller's alone until the end."""
        arrays = self._arrays(feed)
        with self._lock:
            yield self._tensors(arrays)

    def _arrays(self, feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """The checked inputs, in order."""
        if len(feed) > len(self._inputs):
            refuse_unknown(feed, [spec.name for spec in self._artifact.inputs])
        return [
            array
            if isinstance(array := feed.get(spec.name), np.ndarray)
            and array.dtype == dtype
            and array.shape == spec.shape
            else fitting(feed, spec.name, spec.shape, spec.dtype)
            for spec, dtype in self._inputs
        ]

    def _tensors(self, arrays: list[NDArray[Any]]) -> list[tvm.runtime.Tensor]:
        """What the machine takes; only for the holder of the lock."""
        if self._by_thread and not hasattr(self._thread, "ready"):
            set_threads(self.threads)
            self._thread.ready = True
        if len(self._staging) < len(arrays):
            arrays = [array for array in arrays if array.size]
        return [staging.take(array) for staging, array in zip(self._staging, arrays, strict=True)]


def _output(spec: TensorSpec, dtype: np.dtype[Any], made: Iterator[NDArray[Any]]) -> NDArray[Any]:
    """The next of what the kernels made, in the type that users see; an empty tensor is not made by any."""
    if 0 in spec.shape:
        return np.zeros(spec.shape, dtype)
    array = next(made)
    return array if array.dtype == dtype else array.view(dtype)


SMALL_BYTES = 32 << 10
"""To copy an input of this size takes less time than to see whether it can be read where it is."""


class _Staging:
    """Where an input is copied to if kernels cannot read it where it is: they need aligned, dense, writable memory.

    The memory is kept, since fresh memory costs a page fault every 4 KiB.
    """

    def __init__(self, spec: TensorSpec) -> None:
        dtype = word(numpy_type(spec.dtype))
        size = math.prod(spec.shape) * dtype.itemsize
        self._array = paged(size).view(dtype).reshape(spec.shape)
        self._tensor = tvm.runtime.from_dlpack(self._array)

    def take(self, array: NDArray[Any]) -> tvm.runtime.Tensor:
        """``array`` as a tensor, in place if that is possible and worth asking."""
        array = as_words(array)
        if array.nbytes <= SMALL_BYTES:
            np.copyto(self._array, array)
            return self._tensor
        interface = array.__array_interface__
        address, read_only = interface["data"]
        if address % ALIGNMENT == 0 and interface["strides"] is None and not read_only:
            return tvm.runtime.from_dlpack(array)
        np.copyto(self._array, array)
        return self._tensor


def load(path: str | Path, threads: int | None = None) -> InferenceSession:
    """Open the artifact at ``path``; see ``InferenceSession``."""
    return InferenceSession(path, threads=threads)
