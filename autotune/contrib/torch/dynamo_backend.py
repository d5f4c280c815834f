"""The backend ``tune`` of ``torch.compile``: graphs that Dynamo captures run on tuned kernels, others in PyTorch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from autotune.contrib.torch.module_files import check_installed
from autotune.contrib.torch.tuned_graph import TunedGraph
from autotune.options import INSTANT, Options
from schedules.vocabulary.choices import choose, did_you_mean
from schedules.vocabulary.errors import UsageError

if TYPE_CHECKING:  # optional, and slow to import
    from torch.fx import GraphModule

logger = logging.getLogger(__name__)

MODES: Mapping[str, str] = {"default": INSTANT, "reduce-overhead": INSTANT, "max-autotune": "standard"}
"""Mode of ``torch.compile`` → effort. The first call waits for the artifact, so only who asks for a search waits for
one."""

SET_HERE = ("out", "inputs", "shapes", "shares", "weights", "elsewhere", "calibration", "generate", "lanes", "peer")
"""Options that follow from the graph, or need names that it does not have."""


def tune_backend(
    graph: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str = "default",
) -> Callable[..., Any]:
    """Compile a graph of ``torch.compile(module, backend="tune", options={…})``.

    The artifact is built at the first call. A graph that cannot be run on kernels stays in PyTorch, and a warning of
    the logger ``autotune`` says why.

    Args:
        options: fields of ``autotune.Options`` by name; ``effort`` is ``instant`` unless another option needs a search.
        mode: of ``torch.compile``; ``max-autotune`` is ``effort="standard"``.

    Raises:
        UsageError: for an unknown option or mode.
        InstallError: if the exporter is not installed.
    """
    check_installed()
    run = run_options(options or {}, choose("mode", mode, MODES))
    reason = obstacle(example_inputs)
    if reason:
        logger.warning("a graph stays in PyTorch: %s", reason)
        stays: Callable[..., Any] = graph.forward
        return stays
    return TunedGraph(graph, run)


def run_options(asked: Mapping[str, Any], effort: str) -> Options:
    """Return the options of a run.

    Raises:
        UsageError: for an option that is unknown or set by the backend, or a wrong value.
    """
    known = [field.name for field in fields(Options) if field.name not in SET_HERE]
    for name in asked:
        if name not in known:
            near = did_you_mean(name, known)
            raise UsageError(f"options[{name!r}]: unknown; {near}choose one of {', '.join(known)}")
    try:
        return Options(**{"effort": effort, **asked})
    except UsageError:  # a budget, a precision to find: options that measure
        return Options(**asked)


def obstacle(inputs: Sequence[Any]) -> str:
    """Return why kernels cannot compute a graph of ``inputs``; empty if nothing is known to stand in their way."""
    import torch

    tensors = [value for value in inputs if not isinstance(value, int | torch.SymInt)]
    if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in tensors):
        return "an input is neither a plain tensor nor a size"
    if any(tensor.device.type != "cpu" or tensor.layout is not torch.strided for tensor in tensors):
        return "an input is not a dense tensor of the CPU"
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "an input or a weight requires gradients; call the module under torch.no_grad()"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on; leave it out and give options={'precision': 'bf16'}"
    return ""
