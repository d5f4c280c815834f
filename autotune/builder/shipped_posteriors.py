"""The posteriors that this package ships, one file of NumPy arrays per template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from costmodels.posterior import Basis, Spread, TemplatePosterior, Trees
from schedules.processors import INSTRUCTION_SETS
from schedules.space import Space

FOLDER = Path(__file__).parent / "posteriors"

UNRECORDED = "any"
"""Kind of machine that nobody recorded; the others are instruction sets."""


def shipped_posterior(space: Space, isa: str) -> TemplatePosterior | None:
    """Return what is known of ``space`` on machines with such instructions.

    Machines that nobody recorded have what is known of the level below with vectors as long, or else what the recorded
    ones share. None without a file of this version of the template.
    """
    known = _shipped(space.name) if space.extents and space.enumerated else {}
    posterior = known.get(isa) or known.get(_below(isa)) or known.get(UNRECORDED)
    return posterior if posterior is not None and posterior.knows(space) else None


def _below(isa: str) -> str:
    """The level below ``isa`` if its vectors are as long; empty without one."""
    own = INSTRUCTION_SETS.get(isa)
    below = None if own is None else INSTRUCTION_SETS.get(own.runs)
    return own.runs if own is not None and below is not None and below.vector_bytes == own.vector_bytes else ""


@cache
def _shipped(template: str) -> Mapping[str, TemplatePosterior]:
    path = FOLDER / f"{template}.npz"
    return load_posteriors(path) if path.exists() else {}


def load_posteriors(path: Path) -> dict[str, TemplatePosterior]:
    """Return what ``save_posteriors`` wrote."""
    with np.load(path) as file:
        facts = json.loads(str(file["facts"]))
        basis = Basis(file["mean"].astype(np.float64), file["scale"].astype(np.float64))
        trees = Trees(*(file[name] for name in ("feature", "threshold", "value")))
        spread = Spread(tuple(facts["machine"]), tuple(facts["task"]), *facts["spread"])
        posteriors = {}
        for kind in facts["kinds"]:
            weights = file[f"weights-{kind}"].astype(np.float64)
            root = np.zeros((len(weights), len(weights)))
            root[np.tril_indices(len(weights))] = file[f"root-{kind}"]
            names, extents = tuple(facts["names"]), facts["extents"]
            posteriors[kind] = TemplatePosterior(facts["space"], names, extents, basis, weights, root, spread, trees)
    return posteriors


def save_posteriors(path: Path, posteriors: Mapping[str, TemplatePosterior]) -> None:
    """Write the posteriors of one template by kind of machine; all but weights and roots are the same for all."""
    one = next(iter(posteriors.values()))
    spread = one.spread
    facts = {
        "space": one.space,
        "names": one.names,
        "extents": one.extents,
        "kinds": [*posteriors],
        "machine": spread.machine,
        "task": spread.task,
        "spread": [spread.residual, spread.length, spread.noise],
    }
    tables: dict[str, Any] = {}
    for kind, posterior in posteriors.items():
        tables[f"weights-{kind}"] = posterior.weights.astype(np.float32)
        tables[f"root-{kind}"] = posterior.root[np.tril_indices(len(posterior.weights))].astype(np.float32)
    np.savez_compressed(
        path, facts=json.dumps(facts), mean=one.basis.mean, scale=one.basis.scale, **vars(one.trees), **tables
    )
