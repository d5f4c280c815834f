"""Task: one tensor program to tune, described without any TVM object."""

from __future__ import annotations

from dataclasses import dataclass

from schedules.vocabulary.errors import UsageError

TENSOR_CORES = "cuda_tensor"
"""Name of the template whose products run on a GPU's tensor cores."""


@dataclass(frozen=True)
class Task:
    """One tensor program and what a tuner needs to know of it.

    Attributes:
        key: structural hash of the normalised PrimFunc, hex.
        name: the fused function's name in the graph, for people.
        template: name of the template that claims it (also the name of its space).
        op: the anchor operation, such as ``conv2d`` or ``matmul``.
        shapes: parameter shapes in order; the last is the output.
        dtypes: parameter dtypes, one per shape.
        constants: indices of the parameters that are weights (constant in the model, so cold when met).
        flop: floating point operations of one run (a multiply-add counts 2).
        bytes: least traffic of one run: every input read once, every output written once.
        weight: how often the model runs it.
        numbers: what its last parameter but one holds, where kernels share it that differ in these numbers alone: those
            of one of them, for candidates to be checked with.
    """

    key: str
    name: str
    template: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    constants: tuple[int, ...]
    flop: int
    bytes: int
    weight: int = 1
    numbers: tuple[float, ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        """Parameter dtypes as they are multiplied: tensor cores round float32 to ``tf32``."""
        words = self.template == TENSOR_CORES
        return tuple("tf32" if words and dtype == "float32" else dtype for dtype in self.dtypes)

    def __post_init__(self) -> None:
        if not self.key or len(self.shapes) != len(self.dtypes) or self.weight < 1 or self.flop < 0 or self.bytes < 0:
            raise UsageError(f"malformed task {self!r}")
