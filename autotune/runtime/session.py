"""``InferenceSession``, which mirrors onnxruntime's, over every kind of artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from autotune.artifact.composite import read_composite
from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import KERNELS, SHAPES, kind_of
from autotune.backends.executor import Span
from autotune.graph.lanes import Lane
from autotune.runtime.artifact_executor import ArtifactExecutor
from autotune.runtime.inputs import InputCheck, Spec
from autotune.runtime.multi_shape_executor import MultiShapeExecutor
from autotune.runtime.one_shape_executor import OneShapeExecutor
from autotune.runtime.onnxruntime_compat import (
    ModelMeta,
    OnnxRuntimeLike,
    Provider,
    check_run_options,
    meta_of,
    thread_count,
    wanted_outputs,
    warn_of_providers,
)
from autotune.runtime.segmented_executor import SegmentedExecutor
from schedules.errors import UsageError

Array = NDArray[Any]

_ONNX_NAMES = {"float32": "float", "float64": "double"}


class NodeArg:
    """Name, shape and type of an input or output, as onnxruntime's ``NodeArg``.

    Attributes:
        shape: a size that is open has a name, one that depends on data is None.
    """

    def __init__(self, spec: Spec) -> None:
        self.name = spec.name
        self.shape: list[int | str | None] = [None if size == "?" else size for size in spec.shape]
        self.dtype = spec.dtype
        self.type = f"tensor({_ONNX_NAMES.get(spec.dtype, spec.dtype)})"


class InferenceSession(OnnxRuntimeLike):
    """A loaded artifact, to be used where an ``onnxruntime.InferenceSession`` was.

    Safe to call from several threads: kernels serve one call at a time.

    Args:
        path: the artifact directory.
        sess_options: onnxruntime's ``SessionOptions``, of which the thread count is heeded, or that count itself.
        providers, provider_options: accepted; a warning is logged for any but the CPU's.
        threads: threads to run on; None for what it was tuned for.

    Raises:
        ArtifactError: if the artifact is damaged or not for this machine.
        InstallError: if the artifact has fallback partitions and ONNX Runtime is not installed.
        UsageError: for the bytes of a model instead of an artifact, or a thread count below 1.
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
        if isinstance(path, bytes | bytearray):
            raise UsageError("an artifact is a directory, not bytes; save the model and make one with 'tune run MODEL'")
        warn_of_providers(providers)
        self._executor = _executor(Path(path), thread_count(sess_options, threads))
        self._check = InputCheck(self._executor.inputs)
        self._names = [spec.name for spec in self._executor.outputs]

    @property
    def threads(self) -> int:
        """Threads that kernels run on."""
        return self._executor.threads

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in order."""
        return [NodeArg(spec) for spec in self._executor.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs, in order."""
        return [NodeArg(spec) for spec in self._executor.outputs]

    def get_modelmeta(self) -> ModelMeta:
        """Where the artifact comes from."""
        return meta_of(self._executor.provenance)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array], run_options: object = None
    ) -> list[Array]:
        """Outputs for ``input_feed``.

        Args:
            output_names: which outputs, in which order; None for all.
            input_feed: input name → array of the input's type, and of its shape or any that the artifact serves.
            run_options: onnxruntime's ``RunOptions``, of which ``terminate`` is heeded.

        Returns:
            One array per output that was asked for, of the shape and dtype that ``get_outputs`` says.

        Raises:
            UsageError: for a missing, unknown or misshapen input or an unknown output. A size that needs a set of
                shapes of its own is named, with the option to add.
            RunError: if the run options ask to terminate, or the run fails; a fallback partition is named.
        """
        check_run_options(run_options)
        if not output_names:
            return self._executor.run(self._check.arrays(input_feed))
        wanted = wanted_outputs(output_names, self._names)
        made = self._executor.run(self._check.arrays(input_feed))
        outputs = dict(zip(self._names, made, strict=True))
        return [outputs[name] for name in wanted]

    def profile(self, input_feed: Mapping[str, Array]) -> list[tuple[str, float]]:
        """Where the time of one inference goes: (kernel's symbol, seconds) of every call, in order.

        Of several sets of shapes, the one of these very shapes is used. A fallback partition is one entry, named after
        its file. Empty where TVM's virtual machine runs the model, which does not report its calls.

        Raises:
            UsageError: as ``run``.
        """
        return self._executor.profile(self._check.arrays(input_feed))

    def timeline(self, input_feed: Mapping[str, Array]) -> list[Span]:
        """When every subgraph of one inference ran, and on which lane.

        Empty where the model is not cut into subgraphs.

        Raises:
            UsageError: as ``run``.
        """
        return self._executor.timeline(self._check.arrays(input_feed))

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """What runs the subgraphs; of several sets of shapes, those of the first. Empty where there are none."""
        return self._executor.lanes

    def cancel(self) -> None:
        """End the calls in progress in other threads before their next kernel; they raise ``RunError``.

        TVM's virtual machine and ONNX Runtime run to their ends instead.
        """
        self._executor.cancel()


def _executor(path: Path, threads: int | None) -> ArtifactExecutor:
    """What runs the artifact at ``path``."""
    kind = kind_of(path)
    if kind == KERNELS:
        return OneShapeExecutor(read_artifact(path), threads)
    artifact = read_composite(path)
    return MultiShapeExecutor(artifact, threads) if kind == SHAPES else SegmentedExecutor(artifact, threads)


def load(path: str | Path, threads: int | None = None) -> InferenceSession:
    """Open the artifact at ``path``; see ``InferenceSession``."""
    return InferenceSession(path, threads=threads)
