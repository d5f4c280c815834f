"""Whether what was measured on one machine can teach something about another.

Code for one microarchitecture runs on those that descend from it, and archspec knows who descends from whom: what is
fast on a Skylake is a good guess on a Sapphire Rapids, but its guesses may not even compile the other way round.
"""

from __future__ import annotations

import math

import archspec.cpu

from schedules.processors import best_levels, levels_of, processor
from schedules.target import Target

_ARCHSPEC = {"icelake-server": "icelake", "icelake-client": "icelake", "graniterapids": "sapphirerapids"}
"""LLVM's names that archspec does not know → the next one that it does."""


def incompatibility(there: Target, here: Target) -> str:
    """Why records of ``there`` say nothing about ``here``, naming the field that differs; empty if they do.

    Thread count and cache sizes may differ: they make a record less near (``remoteness``), not useless.
    """
    if there.kind != here.kind:
        return f"kind differs: {there.kind} there, {here.kind} here"
    if there.arch != here.arch:
        return f"arch differs: {there.arch} there, {here.arch} here"
    if there.isa != here.isa and there.isa not in levels_of(here.isa):
        return f"isa differs: {there.isa} there, {here.isa} here"
    if not _descends(there.mcpu, here.mcpu):
        return f"mcpu differs: {there.mcpu} there, which {here.mcpu or 'a generic CPU'} here does not descend from"
    missing = sorted(set(there.features) - set(here.features))
    return f"features differ: {','.join(missing)} there, not here" if missing else ""


def remoteness(there: Target, here: Target) -> float:
    """Return how unlike two compatible machines are: 0 for the same, 1 for twice the threads or lanes.

    Heuristic: it only orders records, together with the distance of their shapes in doublings.
    """
    if there.fingerprint == here.fingerprint:
        return 0.0
    return 1.0 + abs(math.log2(there.threads / here.threads)) + abs(math.log2(there.vector_bytes / here.vector_bytes))


def _descends(there: str, here: str) -> bool:
    """Return whether ``here`` is ``there`` or after it in archspec's partial order; LLVM's names, empty for any CPU."""
    if there in ("", "generic", here):
        return True
    older, newer = _microarchitecture(there), _microarchitecture(here)
    return older is not None and newer is not None and older <= newer


def isa_of(mcpu: str) -> str:
    """The best instruction-set level, as ``Target.isa``, of LLVM's ``mcpu``; generic if it is unknown."""
    known = processor(mcpu)
    if known is not None:
        return known.isa
    architecture = _microarchitecture(mcpu)
    if architecture is None:
        return "generic"
    return best_levels(architecture.family.name, frozenset(architecture.features))[0]


def _microarchitecture(mcpu: str) -> archspec.cpu.Microarchitecture | None:
    name = _ARCHSPEC.get(mcpu, mcpu.replace("znver", "zen").replace("-", "_"))
    return archspec.cpu.TARGETS.get(name)
