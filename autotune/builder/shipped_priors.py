"""The priors that this package ships, one file of NumPy arrays per template and instruction set."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

from costmodels.template_prior import QuadraticForm, TemplatePrior, Trees
from schedules.space import Space

FOLDER = Path(__file__).parent / "priors"


def shipped_prior(space: Space, isa: str) -> TemplatePrior | None:
    """The prior for ``space`` on machines with such instructions; None without one of this version of the template."""
    found = _shipped(space.name, isa) if space.extents and space.enumerated else None
    return found if found is not None and found.knows(space, isa) else None


@cache
def _shipped(template: str, isa: str) -> TemplatePrior | None:
    path = FOLDER / f"{template}-{isa}.npz"
    return load_prior(path) if path.exists() else None


def load_prior(path: Path) -> TemplatePrior:
    """What ``save_prior`` wrote."""
    with np.load(path) as file:
        facts = json.loads(str(file["facts"]))
        form = QuadraticForm(*(file[name] for name in ("mean", "scale", "linear", "products")))
        trees = Trees(*(file[name] for name in ("feature", "threshold", "value")))
    return TemplatePrior(facts["space"], facts["isa"], tuple(facts["names"]), facts["extents"], form, trees)


def save_prior(path: Path, prior: TemplatePrior) -> None:
    """Write one file."""
    facts = {"space": prior.space, "isa": prior.isa, "names": prior.names, "extents": prior.extents}
    np.savez_compressed(path, facts=json.dumps(facts), **vars(prior.form), **vars(prior.trees))
