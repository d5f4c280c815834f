"""Arguments and answers of ``InferenceSession`` that let code written for onnxruntime run unchanged.

What has no meaning here (providers, optimisation levels, logging) is accepted; what would change results or where code
runs is said once in the log, never silently dropped.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from autotune.frame.noise import without_noise
from autotune.runtime.inputs import Spec
from schedules.vocabulary.bounded import is_whole
from schedules.vocabulary.choices import did_you_mean
from schedules.vocabulary.errors import RunError, UsageError

MOST_THREADS = 4096
"""Threads that can be asked for: more than a machine has cores, and few enough to have their places in memory."""

PROVIDER = "CPUExecutionProvider"

logger = logging.getLogger(__name__)

Provider = str | tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class ModelMeta:
    """Facts about the model, as onnxruntime's ``ModelMetadata``; ``custom_metadata_map`` is the provenance."""

    graph_name: str
    producer_name: str = "tune"
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


_ONNX_NAMES = {"float32": "float", "float64": "double", "object": "string"}


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


class Described(Protocol):
    """The executor, as far as it is described."""

    @property
    def inputs(self) -> Sequence[Spec]:
        """The model's inputs, and those of noise."""
        ...

    @property
    def outputs(self) -> Sequence[Spec]:
        """The model's outputs."""
        ...

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Return the provenance of the artifact."""
        ...


class OnnxRuntimeLike(ABC):
    """The calls of onnxruntime's session that say what it is."""

    @property
    @abstractmethod
    def _described(self) -> Described:
        """The description of what the session runs."""

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in order."""
        return [NodeArg(spec) for spec in without_noise(self._described.inputs)]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs of noise, which the session draws where a feed leaves them out. No weight can be overridden."""
        fed = without_noise(self._described.inputs)
        return [NodeArg(spec) for spec in self._described.inputs if spec not in fed]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs, in order."""
        return [NodeArg(spec) for spec in self._described.outputs]

    def get_modelmeta(self) -> ModelMeta:
        """The provenance of the artifact."""
        return meta_of(self._described.provenance)

    def get_providers(self) -> list[str]:
        """Return where it runs."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """None have any meaning."""
        return {PROVIDER: {}}

    def set_providers(self, providers: Sequence[Provider], provider_options: object = None) -> None:
        """Accepted and ignored with a warning where it asks for another provider than the CPU."""
        warn_of_providers(providers)

    def disable_fallback(self) -> None:  # noqa: B027  # accepted and ignored
        """There is nothing to fall back to."""

    def enable_fallback(self) -> None:  # noqa: B027  # accepted and ignored
        """There is nothing to fall back to."""


def warn_of_providers(providers: Sequence[Provider] | None) -> None:
    """Say that ``providers`` other than the CPU's are ignored."""
    names = [
        str(provider[0] if isinstance(provider, tuple | list) and provider else provider)
        for provider in ([providers] if isinstance(providers, str) else providers or ())
    ]
    others = [name for name in names if name != PROVIDER]
    if others:
        logger.warning("providers %s are ignored: an artifact runs on what it was built for", ", ".join(others))


def thread_count(sess_options: object, threads: int | None) -> int | None:
    """Threads that were asked for: ``threads``, a number in place of the options, or their ``intra_op_num_threads``.

    Raises:
        UsageError: if it is no number above zero.
    """
    if threads is None and is_whole(sess_options):
        threads = sess_options  # type: ignore[assignment]
    elif threads is None:  # in onnxruntime's options, 0 stands for the default
        threads = getattr(sess_options, "intra_op_num_threads", None) or None
    if threads is not None and not (is_whole(threads) and 1 <= threads <= MOST_THREADS):
        raise UsageError(
            f"threads is {threads!r}; it must be a whole number, at least 1 and at most {MOST_THREADS}, or None for "
            "what the artifact was tuned for"
        )
    return threads


def meta_of(provenance: Mapping[str, object]) -> ModelMeta:
    """The metadata of an artifact of this provenance."""
    texts = {name: str(value) for name, value in provenance.items()}
    return ModelMeta(texts.get("model", ""), custom_metadata_map=texts)


def wanted_outputs(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """The outputs that are asked for, in order; all of ``known`` for none.

    Raises:
        UsageError: naming the nearest one, if the model has no output of that name.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UsageError(f"output_names is {names!r}; give a list of names, or None for all outputs")
    wanted = list(names)
    for name in wanted:
        if name not in known:
            near = did_you_mean(name, known)
            raise UsageError(f"the model has no output {name!r}; {near}its outputs are {list(known)}")
    return wanted or list(known)


def check_run_options(run_options: object) -> None:
    """Refuse a run that is already asked to end; every other option is about logging.

    Raises:
        RunError: if ``terminate`` is set, as onnxruntime does.
    """
    if getattr(run_options, "terminate", False):
        raise RunError("the run was not started: its run options ask to terminate; give fresh ones")
