"""The decision of ``--precision auto``, as the artifact keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.artifact.plain_data import decode, encode
from schedules.task import Task

PRECISION_CHOICE = "precision_choice"
"""Field of an artifact's provenance."""

SHORT_OPERANDS = {"bf16": ("bfloat16",), "fp16": ("float16",), "int8": ("int8", "uint8"), "tf32": ("tf32",)}
"""Precision of a product → types of its operands."""

OPERANDS = 2
"""Operands of a product."""


@dataclass(frozen=True)
class ProductChoice:
    """One product of the model.

    Attributes:
        number: as ``options.Precision`` numbers it.
        kernel: key of the artifact's task that holds it.
        precision: ``fp32``, ``bf16`` or ``tf32``.
        fp32_s, bf16_s: seconds of its kernel in either, as measured while they were tuned.
        error: of the model's outputs where this product alone computes in bf16, as a share of their root mean square;
            None where it was not needed.
    """

    number: int
    kernel: str
    precision: str
    fp32_s: float
    bf16_s: float
    error: float | None = None


@dataclass(frozen=True)
class PrecisionChoice:
    """The choice for a model.

    Attributes:
        precision: as ``options.Precision`` writes it.
        reason: why no product computes in bf16, where none was tried; else empty.
        error: of the artifact's outputs, as a share of their root mean square.
        bound: the largest error that was allowed.
        bound_of: where the bound comes from, in words.
        samples: inputs that errors were measured on.
        products: by number; empty where kernels could not be told apart, and all products have one precision.
    """

    precision: str
    reason: str = ""
    error: float | None = None
    bound: float | None = None
    bound_of: str = ""
    samples: int = 0
    products: tuple[ProductChoice, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """As in ``tune run --json`` and in the artifact."""
        data: dict[str, Any] = encode(self)
        return data

    def __str__(self) -> str:
        """In one line for people."""
        if self.reason or self.error is None or self.bound is None:
            return f"precision {self.precision}: {self.reason}"
        short = [product.precision for product in self.products if product.precision != "fp32"]
        kind = short[0] if short else "bf16"
        what = f"{len(short)} of {len(self.products)} products in {kind}" if self.products else self.precision
        error = f"error {self.error:.2g} of the outputs' root mean square"
        return f"precision: {what}, {error}, at most {self.bound:.2g} ({self.bound_of})"

    def errors(self) -> dict[str, float]:
        """Key of a task → largest error of a product that it computes, where those were measured."""
        errors: dict[str, float] = {}
        for product in self.products:
            if product.error is not None:
                errors[product.kernel] = max(product.error, errors.get(product.kernel, 0.0))
        return errors


def precision_of(task: Task) -> str:
    """The precision of ``SHORT_OPERANDS`` that two operands have, else ``fp32``: also of kernels that quantise."""
    for precision, kinds in SHORT_OPERANDS.items():
        if sum(dtype in kinds for dtype in task.operands[:-1]) >= OPERANDS:
            return precision
    return "fp32"


def choice_of(provenance: Mapping[str, Any]) -> PrecisionChoice | None:
    """The choice that an artifact with this provenance was built by; None if its precision was given."""
    data = provenance.get(PRECISION_CHOICE)
    return None if data is None else decode(PrecisionChoice, data)
