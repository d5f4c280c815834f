"""What a template is, and what a set of templates for one kind of target is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import tvm
from tvm import s_tir, tirx

from schedules.config import Config
from schedules.space import Space
from schedules.target import Target
from schedules.templates.common.structure import Anchor, Repack


class Template(Protocol):
    """One pattern: recognises it, offers its configs, applies one."""

    name: str
    version: int

    def match(self, func: tirx.PrimFunc) -> Anchor | None:
        """What the template needs to know of ``func``, or None if it is not its pattern."""
        ...

    def space(self, anchor: Anchor, target: Target) -> Space:
        """The configs worth trying on ``target``."""
        ...

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """``func`` with its stages replaced by those of the config's algorithm; same parameters, weights repacked."""
        ...

    def repack(self, anchor: Anchor, config: Config) -> dict[int, Repack]:
        """Parameter index → what to do to the model's packed weight for this config."""
        ...

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place; raises ScheduleError for an illegal config."""
        ...


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
        half_native: whether float16 operands of products stay float16; else they become float32 at import.
        channels_last: whether images are (n, h, w, c); else their channels are blocked, (n, c/b, h, w, b).
    """

    kind: str
    templates: tuple[Template, ...]
    baseline: Callable[[tirx.PrimFunc, Target], s_tir.Schedule]
    rename: Callable[[tirx.PrimFunc], tirx.PrimFunc]
    expand: Callable[[tirx.PrimFunc], tirx.PrimFunc]
    tvm_target: Callable[[Target], tvm.target.Target]
    half_native: bool
    channels_last: bool


def unchanged(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` itself: the ``rename`` or ``expand`` of a set that needs none."""
    return func
