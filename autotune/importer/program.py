"""From a simplified ONNX model to fused tasks: what the tuner tunes and what the builder builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from numpy.typing import NDArray
from tvm import relax

from autotune.frame.frame import Frame
from autotune.host.dtypes import as_words
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.conversion.packed_outputs import frame_of
from autotune.importer.conversion.static_calls import static_calls
from autotune.importer.draft import GraphDraft, KernelDraft
from autotune.importer.import_passes import PROGRAM, SIMPLIFY, run
from autotune.importer.onnx_model.segments import attributed
from autotune.interface import Cache, TensorSpec
from autotune.options import FP32, Precision
from schedules.lower import Spaces
from schedules.space import Space
from schedules.target import Target
from schedules.task import Task
from schedules.template_sets import template_set


@dataclass(frozen=True)
class Program:
    """A model as fused kernels.

    Attributes:
        main: in Relax, of inputs, then weights, which calls the kernels by name.
        weights: the arrays for ``main``'s weight parameters, in order; short floats as words (``host.dtypes``).
        inputs, outputs: the model's interface.
        tasks: the distinct kernels, most work first.
        programs: task key → normalised PrimFunc as JSON text.
        spaces: task key → what can be tuned.
        kernels: kernel's name in ``main`` → task key.
        precision: which products read bf16 operands.
        products: how many there are, that ``precision`` numbers.
        frame: what is done on the host around the kernels; None where that is nothing.
        caches: that kernels write in place. ``main`` then takes buffers of their capacities in place of what the model
            takes, has ``LENGTHS`` as its last input, and gives the outputs that are no caches.
        open_sizes: rows of a batch and positions of which calls may have fewer, as ``Spaces`` takes them.
    """

    main: relax.Function
    weights: tuple[NDArray[Any], ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    tasks: tuple[Task, ...]
    programs: dict[str, str]
    spaces: Mapping[str, Space]
    kernels: dict[str, str]
    precision: Precision = FP32
    products: int = 0
    frame: Frame | None = None
    caches: tuple[Cache, ...] = ()
    open_sizes: tuple[int, ...] = ()


def simplify(model: onnx.ModelProto, activations: str = "uint8") -> onnx.ModelProto:
    """An equivalent, simpler model; ``model`` is left as it is.

    Args:
        model: as ``load_model`` gives it.
        activations: uint8 or int8, which products of quantised tensors read, summed as integers; "" where all that is
            between two quantisers becomes fp32.

    Raises:
        ModelError: if a function cannot be expanded, or the expanded model's shapes do not fit.
    """
    draft = GraphDraft(model, model, activations)
    run(SIMPLIFY, draft, "checked")
    return draft.model


def simplified(model: onnx.ModelProto, target: Target) -> onnx.ModelProto:
    """``simplify`` with what the templates of ``target`` have kernels for."""
    return simplify(model, activations=template_set(target).activations(target))


def import_program(
    model: onnx.ModelProto, target: Target, precision: Precision = FP32, caches: tuple[Cache, ...] = ()
) -> Program:
    """Relax import, types, layouts, fusion and tasks.

    Args:
        model: simplified, with static shapes. Changed where it has caches.
        precision: which products read bf16 operands.
        caches: to write in place; the model then has ``LENGTHS`` as its last input.

    Raises:
        ModelError: naming the operator that cannot be imported.
    """
    try:
        with third_party(), static_calls():
            return _imported(KernelDraft(model, target, precision, caches))
    except ThirdPartyError as error:  # a pass over the whole program, which rarely says over which operator
        raise attributed(model, error, lambda part: _imported(KernelDraft(part, target, precision))) from error


def _imported(draft: KernelDraft) -> Program:
    run(PROGRAM, draft, "simple")
    return Program(
        draft.module["main"],
        tuple(map(as_words, draft.weights)),
        draft.inputs,
        draft.outputs,
        draft.tasks,
        draft.programs,
        Spaces(draft.programs, draft.target),
        draft.kernels,
        draft.precision,
        draft.products,
        frame_of(draft.model),
        draft.caches,
    )
