"""The protocols of a template and of a set of templates for one kind of target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import tvm
from tvm import s_tir, tirx

from schedules.config import Config
from schedules.space import Space
from schedules.target import Target
from schedules.templates.common.structure import Anchor, Repack, find_anchor

Found = TypeVar("Found", bound=Anchor)


class Template(Protocol[Found]):
    """One pattern: recognises it, offers its configs, applies one."""

    name: str
    version: int

    def __hash__(self) -> int:
        """Implement ``Hashable``, for matches that are kept."""
        ...

    def match(self, func: tirx.PrimFunc) -> Found | None:
        """Return the facts about ``func`` that the template needs, or None if it is not its pattern."""
        ...

    def space(self, anchor: Found, target: Target) -> Space:
        """The configs worth trying on ``target``."""
        ...

    def prepare(self, func: tirx.PrimFunc, anchor: Found, config: Config) -> tirx.PrimFunc:
        """``func`` with its stages replaced by those of the config's algorithm; same parameters, weights repacked."""
        ...

    def repack(self, anchor: Found, config: Config) -> dict[int, Repack]:
        """Parameter index → what to do to the model's packed weight for this config."""
        ...

    def assembly(self, func: tirx.PrimFunc, anchor: Found, config: Config, target: Target, symbol: str) -> str:
        """The kernel ``symbol`` as text for the system's assembler; empty where the compiler has to make it.

        It computes what the scheduled program computes, with the same order of sums.

        Raises:
            OutOfScope: where the compiler has to make it too.
        """
        ...

    def apply(self, sch: s_tir.Schedule, anchor: Found, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place; raises ScheduleError for an illegal config."""
        ...


class OneAlgorithm(Generic[Found]):
    """Defaults for templates whose configs all compute the same stages from the same weights."""

    def prepare(self, func: tirx.PrimFunc, anchor: Found, config: Config) -> tirx.PrimFunc:
        """``func`` as it is."""
        return func

    def repack(self, anchor: Found, config: Config) -> dict[int, Repack]:
        """No weight changes."""
        return {}

    def assembly(self, func: tirx.PrimFunc, anchor: Found, config: Config, target: Target, symbol: str) -> str:
        """Left to the compiler."""
        return ""


class MarkedTemplate(OneAlgorithm[Anchor]):
    """Defaults for templates of one block, which the compute has marked with the template's name."""

    name: str

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """The marked block, if there is one."""
        return find_anchor(func, self.name)


@dataclass(frozen=True)
class TemplateSet:
    """All that depends on the kind of target in choosing and applying schedules.

    Attributes:
        kind: as ``Target.kind``.
        templates: in the order in which they are tried.
        baseline: (function, target) → its untuned schedule, which exists for every function.
        rename: applied to a function before its template sees it; same parameters, same computation.
        expand: applied to what a template prepared, before it is scheduled; same parameters, same computation.
        tvm_target: the TVM object for a target.
        half_native: whether tensors of 16-bit floats are stored and multiplied as such; else operands of products
            become float32 at import, and bfloat16 is stored as its bits.
        activations: of a target, the type that products of quantised tensors read, summed as integers; empty where they
            become fp32 at import.
        by_hand: whether scatters become kernels that are scheduled by hand, for CPUs.
        channels_last: whether images are (n, h, w, c); else their channels are blocked, (n, c/b, h, w, b).
    """

    kind: str
    templates: tuple[Template[Any], ...]
    baseline: Callable[[tirx.PrimFunc, Target], s_tir.Schedule]
    rename: Callable[[tirx.PrimFunc], tirx.PrimFunc]
    expand: Callable[[tirx.PrimFunc], tirx.PrimFunc]
    tvm_target: Callable[[Target], tvm.target.Target]
    half_native: bool
    activations: Callable[[Target], str]
    by_hand: bool
    channels_last: bool


def unchanged(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` itself: the ``rename`` or ``expand`` of a set that needs none."""
    return func
