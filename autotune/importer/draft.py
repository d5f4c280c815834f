"""Drafts are the data that passes change: an ONNX model that becomes simpler, then a model that becomes kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from onnx import ModelProto
from tvm.ir import IRModule

from autotune.frame.frame import HostStep
from autotune.interface import Cache, TensorSpec
from autotune.options import Precision
from schedules.target import Target
from schedules.task import Task
from schedules.template_sets import template_set
from schedules.templates.template import TemplateSet


@dataclass
class GraphDraft:
    """An ONNX model that passes make simpler.

    Attributes:
        original: the checked model, which stays as it is.
        model: what passes change.
        activations: uint8 or int8, which products of quantised tensors read; "" where they become fp32.
        inputs: names of the model's inputs, without the weights that are inputs of a skeleton.
        before, after: steps of the host before and after the kernels.
    """

    original: ModelProto
    model: ModelProto
    activations: str = "uint8"
    inputs: list[str] = field(default_factory=list)
    before: list[HostStep] = field(default_factory=list)
    after: list[HostStep] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The model's, for messages."""
        return self.model.graph.name or "model"


@dataclass
class KernelDraft:
    """A simplified model that passes turn into kernels.

    Attributes:
        model: what passes on the ONNX graph change.
        target: of the kernels.
        precision: which products read bf16 operands.
        caches: written in place; once the interface is known, with their capacities.
        inputs, outputs: the interface.
        module: in Relax, once the model is converted.
        products: their count; ``precision`` numbers them.
        weights: of the weight parameters of ``module``'s main.
        tasks, programs, kernels: as of ``Program``.
    """

    model: ModelProto
    target: Target
    precision: Precision
    caches: tuple[Cache, ...] = ()
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    module: IRModule = field(init=False)
    products: int = 0
    weights: list[NDArray[Any]] = field(default_factory=list)
    tasks: tuple[Task, ...] = ()
    programs: dict[str, str] = field(default_factory=dict)
    kernels: dict[str, str] = field(default_factory=dict)

    @property
    def templates(self) -> TemplateSet:
        """The templates of the target's kind."""
        return template_set(self.target)
